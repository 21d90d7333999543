/* transport.h - what the files of this floor share about transports. */
#ifndef FERRY_CHANNEL_TRANSPORT_H
#define FERRY_CHANNEL_TRANSPORT_H

#include <ferry/sys/transport.h>

extern const ferry_transport_ops_t fy_transport_shm;

/* Makes a handle for a state that is there already; ops must outlive it. */
ferry_status_t fy_transport_create(ferry_world_t *world, const ferry_transport_ops_t *ops,
                                   void *state, ferry_transport_t **transport_p,
                                   ferry_error_t *err);

/* A decorator's table: `mine` where `inner` has a function, NULL where it has none, the name of
 * `inner`. A decorated transport meets an undecorated one of the same name. */
void fy_transport_decorate(const ferry_transport_ops_t *mine, const ferry_transport_ops_t *inner,
                           ferry_transport_ops_t *ops_p);

/* Streaming stores of this thread come before its later stores. Ordinary ones do anyway, on x86 by
 * nature and elsewhere by the release that follows. */
static inline void fy_fence_streams(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_sfence();
#elif defined(__aarch64__)
    __asm__ volatile("dmb ishst" ::: "memory");
#endif
}

#endif

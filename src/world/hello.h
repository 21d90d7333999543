/* hello.h - what processes say when they meet at a socket.
 *
 * Packets over a unix SOCK_SEQPACKET socket. A joiner sends one hello; rank 0 answers with one reply,
 * which carries the descriptor of the world's file when its status is FERRY_OK. The first four fields
 * of a hello and the first three of a reply never change, whatever the version: they are what lets two
 * versions tell each other that they do not fit. */
#ifndef FERRY_WORLD_HELLO_H
#define FERRY_WORLD_HELLO_H

#include <stdint.h>

#include <ferry/status.h>

#define FY_HELLO_MAGIC "ferrywld"
#define FY_HELLO_ORDER UINT32_C(0x01020304) /* reads otherwise in another byte order */

typedef struct fy_hello {
    char magic[8];
    uint32_t order;
    uint32_t version;  /* ferry_version_number() */
    uint32_t bytes;    /* of this struct */
    uint32_t sizes[4]; /* of the structs that the ranks share: control, slot, cell, error record */
    uint32_t rank;
    uint32_t size;
    uint32_t padding;
    uint64_t pid_space; /* of pids: which name space they are numbers of */
    uint64_t arena_bytes;
} fy_hello_t;

typedef struct fy_reply {
    char magic[8];
    uint32_t status;
    char text[FERRY_ERROR_TEXT_MAX];
    uint32_t rank; /* of the record */
    uint32_t peer;
} fy_reply_t;

void fy_hello_fill(fy_hello_t *hello_p, uint32_t rank, uint32_t size, uint64_t arena_bytes);
/* Compares a hello of `got` bytes with ours. */
ferry_status_t fy_hello_check(const fy_hello_t *hello, size_t got, const fy_hello_t *ours,
                              ferry_error_t *err);

#endif

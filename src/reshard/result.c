/* result.c - what a run did, as text. */
#include <inttypes.h>

#include "base/text.h"
#include "reshard/session.h"

const char *ferry_reshard_phase_name(ferry_reshard_phase_t phase) {
    static const char *const names[FERRY_PHASE_COUNT] = {"prepare", "reduce", "pack",    "move",
                                                         "unpack",  "commit", "refresh", "meet"};
    return (uint32_t)phase < FERRY_PHASE_COUNT ? names[phase] : "?";
}

size_t ferry_reshard_result_json(const ferry_reshard_result_t *r, char *buf, size_t cap) {
    fy_text_t text;
    fy_text_init(&text, buf, cap);
    fy_text_printf(&text,
                   "{\"bytes\":{\"received\":%" PRIu64 ",\"direct\":%" PRIu64 ",\"read\":%" PRIu64
                   ",\"pipeline\":%" PRIu64 ",\"reduced\":%" PRIu64 "},",
                   r->bytes_received, r->bytes_direct, r->bytes_read, r->bytes_pipeline,
                   r->bytes_reduced);
    fy_text_printf(&text,
                   "\"writebacks\":{\"direct\":{\"chunks\":%" PRIu64 ",\"bytes\":%" PRIu64
                   "},\"copy\":{\"chunks\":%" PRIu64 ",\"bytes\":%" PRIu64
                   "},\"transform\":{\"chunks\":%" PRIu64 ",\"bytes\":%" PRIu64 "}},",
                   r->chunks_direct, r->writeback_direct_bytes, r->chunks_copy,
                   r->writeback_copy_bytes, r->chunks_transform, r->writeback_transform_bytes);
    fy_text_printf(&text,
                   "\"buckets\":%" PRIu64 ",\"buckets_checked\":%" PRIu64 ",\"passes\":%" PRIu32
                   ",\"rounds\":%" PRIu32 ",\"staging_bytes\":%" PRIu64 ",\"commit_bytes\":%" PRIu64
                   ",\"version\":%" PRIu64 ",\"committed\":%s,\"seconds\":{",
                   r->buckets, r->buckets_checked, r->passes, r->rounds, r->staging_bytes,
                   r->commit_bytes, r->version, r->committed ? "true" : "false");
    for (uint32_t i = 0; i < FERRY_PHASE_COUNT; i++) {
        fy_text_printf(&text, "\"%s\":%.9f,", ferry_reshard_phase_name(i), r->seconds[i]);
    }
    fy_text_printf(&text, "\"total\":%.9f}}", r->total_seconds);
    return text.length;
}

/* switch.c - switch channels: the same range on some ranks, reduced or written by one of them.
 *
 * All members' memory is mapped; the caller does the work. Reductions go in pieces that stay in the
 * cache: a piece is folded into the caller's own target, then stored to the others while it is hot.
 *
 * Invariant: all ranges are checked before the first byte is written. */
#include "channel/set.h"

#include <inttypes.h>
#include <string.h>

#include <ferry/kernel.h>

#include "base/checked.h"
#include "base/fail.h"

#define PIECE_BYTES 32768 /* of one member; a multiple of every element */

typedef struct job {
    ferry_switch_channel_t *channel;
    uint32_t buffer;
    uint64_t offset;
    uint64_t elements;
    ferry_dtype_t dtype;
    ferry_reduce_op_t op;
} job_t;

/* The range must be there on all members. */
static ferry_status_t check_range(const ferry_switch_channel_t *channel, uint32_t buffer,
                                  uint64_t offset, uint64_t bytes, uint32_t caps,
                                  ferry_error_t *err) {
    for (uint32_t i = 0; i < channel->count; i++) {
        const ferry_remote_t *remote = NULL;
        FY_TRY(fy_set_range(channel->set, channel->members[i], buffer, offset, bytes, caps, &remote,
                            err));
    }
    return FERRY_OK;
}

static uint8_t *member_memory(const ferry_switch_channel_t *channel, uint32_t i, uint32_t buffer,
                              uint64_t offset) {
    const fy_member_t *member = &channel->set->members[channel->members[i]];
    return (uint8_t *)member->buffers[buffer].address + offset;
}

/* target := the fold of `elements` elements that begin `skip` bytes into the job's range. */
static ferry_status_t fold(const job_t *job, uint64_t skip, uint64_t elements, void *target,
                           ferry_error_t *err) {
    ferry_view_t views[FERRY_WORLD_MAX_RANKS]; /* on the stack: nothing may be allocated here */
    ferry_view_t to;
    FY_TRY(ferry_view_contiguous(target, job->dtype, 1, &elements, &to, err));
    for (uint32_t i = 0; i < job->channel->count; i++) {
        views[i] = to;
        views[i].data = member_memory(job->channel, i, job->buffer, job->offset + skip);
    }
    return ferry_reduce(&to, views, job->channel->count, job->op, err);
}

static ferry_status_t put_to_others(const ferry_switch_channel_t *channel, uint32_t buffer,
                                    uint64_t offset, const void *source, size_t bytes, bool to_self,
                                    ferry_error_t *err) {
    const ferry_channels_t *set = channel->set;
    const ferry_transport_t *transport = set->transport;
    for (uint32_t i = 0; i < channel->count; i++) {
        uint32_t member = channel->members[i];
        if (member == set->me && !to_self) {
            continue;
        }
        ferry_status_t status = transport->ops->put(
            transport->state, &set->members[member].buffers[buffer], offset, source, bytes, err);
        if (status != FERRY_OK) {
            fy_error_ranks(err, ferry_world_rank(set->world), set->members[member].rank);
            return status;
        }
    }
    return FERRY_OK;
}

static ferry_status_t fail_switch(const ferry_switch_channel_t *channel, const char *what,
                                  ferry_error_t *mine, ferry_error_t *err) {
    fy_end_t end = {
        .set = channel->set, .kind = "switch", .id = channel->id, .peer = channel->set->me};
    return fy_end_fail(&end, what, mine, err);
}

static ferry_status_t begin(const job_t *job, uint64_t *bytes_p, ferry_error_t *err) {
    FY_TRY(fy_set_check(job->channel->set, err));
    FY_TRY(ferry_dtype_bytes(job->dtype, job->elements, bytes_p, err));
    return check_range(job->channel, job->buffer, job->offset, *bytes_p, FERRY_TRANSPORT_MAP, err);
}

uint32_t ferry_switch_size(const ferry_switch_channel_t *channel) {
    return channel->count;
}

ferry_status_t ferry_switch_reduce(ferry_switch_channel_t *channel, void *target, uint32_t buffer,
                                   uint64_t offset, uint64_t elements, ferry_dtype_t dtype,
                                   ferry_reduce_op_t op, ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED_ARRAY(target, elements, err);
    job_t job = {channel, buffer, offset, elements, dtype, op};
    uint64_t bytes = 0;
    FY_TRY(begin(&job, &bytes, err));
    return elements == 0 ? FERRY_OK : fold(&job, 0, elements, target, err);
}

/* One buffer, ranges that share bytes without being the same. */
static bool is_shifted(const job_t *job, uint32_t target_buffer, uint64_t target_offset,
                       uint64_t bytes) {
    uint64_t low = fy_min_u64(job->offset, target_offset);
    uint64_t high = fy_max_u64(job->offset, target_offset);
    return job->buffer == target_buffer && low != high && high - low < bytes;
}

static ferry_status_t reduce_pieces(const job_t *job, uint32_t target_buffer,
                                    uint64_t target_offset, ferry_error_t *err) {
    const ferry_switch_channel_t *channel = job->channel;
    const fy_member_t *me = &channel->set->members[channel->set->me];
    uint64_t width = ferry_dtype_bits(job->dtype) / 8;
    uint64_t step = PIECE_BYTES / width;
    for (uint64_t done = 0; done < job->elements; done += step) {
        uint64_t count = fy_min_u64(step, job->elements - done);
        uint64_t at = target_offset + done * width;
        uint8_t *mine = (uint8_t *)me->buffers[target_buffer].address + at;
        FY_TRY(fold(job, done * width, count, mine, err));
        ferry_error_t failure = FERRY_ERROR_INIT;
        if (put_to_others(channel, target_buffer, at, mine, count * width, false, &failure) !=
            FERRY_OK) {
            return fail_switch(channel, "reduce", &failure, err);
        }
    }
    return FERRY_OK;
}

ferry_status_t ferry_switch_reduce_all(ferry_switch_channel_t *channel, uint32_t target_buffer,
                                       uint64_t target_offset, uint32_t source_buffer,
                                       uint64_t source_offset, uint64_t elements,
                                       ferry_dtype_t dtype, ferry_reduce_op_t op,
                                       ferry_error_t *err) {
    FY_NEED(channel, err);
    job_t job = {channel, source_buffer, source_offset, elements, dtype, op};
    uint64_t bytes = 0;
    FY_TRY(begin(&job, &bytes, err));
    FY_TRY(check_range(channel, target_buffer, target_offset, bytes,
                       FERRY_TRANSPORT_MAP | FERRY_TRANSPORT_PUT, err));
    if (is_shifted(&job, target_buffer, target_offset, bytes)) {
        return fy_fail(err, FERRY_INVALID,
                       "reduce on switch channel %" PRIu32 ": %" PRIu64 " bytes at %" PRIu64
                       " and at %" PRIu64 " of buffer %" PRIu32 " overlap",
                       channel->id, bytes, source_offset, target_offset, source_buffer);
    }
    return reduce_pieces(&job, target_buffer, target_offset, err);
}

ferry_status_t ferry_switch_broadcast(ferry_switch_channel_t *channel, uint32_t buffer,
                                      uint64_t offset, const void *source, size_t bytes,
                                      ferry_error_t *err) {
    FY_NEED(channel, err);
    FY_NEED_ARRAY(source, bytes, err);
    FY_TRY(fy_set_check(channel->set, err));
    FY_TRY(check_range(channel, buffer, offset, bytes, FERRY_TRANSPORT_PUT, err));
    if (bytes == 0) {
        return FERRY_OK;
    }
    const fy_member_t *me = &channel->set->members[channel->set->me];
    const void *own = me->buffers[buffer].address;
    bool in_place = own != NULL && (const uint8_t *)own + offset == source;
    ferry_error_t failure = FERRY_ERROR_INIT;
    if (put_to_others(channel, buffer, offset, source, bytes, !in_place, &failure) != FERRY_OK) {
        return fail_switch(channel, "broadcast", &failure, err);
    }
    return FERRY_OK;
}

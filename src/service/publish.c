/* publish.c - what a rank tells the others of its ends.
 *
 * A blob is one byte, 0 or 1. After 1 comes a ferry_error_t: the rank cannot take part. After 0 come, as
 * varints (base/bytes.h):
 *
 *     size of the group times: may the rank read that member's own memory?
 *     sends: count, then each end; receives: likewise
 *     end: task id, peer, dtype, wire dtype, reach, at, bytes, offset, ndim, shape..., strides...
 *
 * The reader trusts no number in it. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "service/builtin.h"
#include "world/world.h"

enum { SAYS_ENDS = 0, SAYS_ERROR = 1 };

/* --- writing ----------------------------------------------------------------------------------- */

static ferry_status_t write_end(fy_builtin_t *service, const ferry_copy_op_t *op, fy_writer_t *blob,
                                ferry_error_t *err) {
    const ferry_view_t *view = &op->view;
    int64_t low = 0;
    int64_t high = 0;
    FY_TRY(ferry_view_extent(view, &low, &high, err));
    ferry_mem_key_t key = {0, FERRY_MEM_NONE, 0, 0};
    if (high > low) {
        FY_TRY(ferry_mem_register(service->world, (const uint8_t *)view->data + low,
                                  (size_t)(high - low), &key, err));
    }
    fy_write_u64(blob, op->task_id);
    fy_write_u64(blob, op->peer);
    fy_write_u64(blob, view->dtype);
    fy_write_u64(blob, op->wire);
    fy_write_u64(blob, key.reach);
    fy_write_u64(blob, key.at);
    fy_write_u64(blob, key.bytes);
    fy_write_u64(blob, (uint64_t)-low);
    fy_write_u64(blob, view->ndim);
    for (uint32_t i = 0; i < view->ndim; i++) {
        fy_write_u64(blob, view->shape[i]);
    }
    for (uint32_t i = 0; i < view->ndim; i++) {
        fy_write_i64(blob, view->strides[i]);
    }
    return FERRY_OK;
}

static ferry_status_t write_ends(fy_builtin_t *service, const char *what,
                                 const ferry_copy_op_t *ops, size_t count, fy_writer_t *blob,
                                 ferry_error_t *err) {
    fy_write_u64(blob, count);
    for (size_t i = 0; i < count; i++) {
        ferry_status_t status = write_end(service, &ops[i], blob, err);
        if (status != FERRY_OK) {
            ferry_error_t prefix = FERRY_ERROR_INIT;
            (void)fy_fail(&prefix, status, "%s: %s %zu, task id %" PRIu64, FY_SERVICE_NAME, what, i,
                          ops[i].task_id);
            fy_error_prefix(err, prefix.text);
            return status;
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_publish(fy_builtin_t *service, const ferry_copy_list_t *list, fy_writer_t *blob,
                          ferry_error_t *err) {
    uint8_t says = SAYS_ENDS;
    fy_write_bytes(blob, &says, 1);
    for (uint32_t member = 0; member < service->size; member++) {
        uint32_t rank = ferry_group_world_rank(service->group, member);
        fy_write_u64(blob, ferry_world_can_read(service->world, rank) ? 1 : 0);
    }
    FY_TRY(write_ends(service, "send", list->sends, list->nsends, blob, err));
    FY_TRY(write_ends(service, "receive", list->recvs, list->nrecvs, blob, err));
    return blob->failed ? fy_fail_nomem(err, "what a rank publishes") : FERRY_OK;
}

void fy_publish_error(fy_writer_t *blob, const ferry_error_t *error, uint8_t *memory, size_t cap) {
    memset(memory, 0, cap);
    memory[0] = SAYS_ERROR;
    memcpy(memory + 1, error, sizeof *error);
    blob->bytes = memory;
    blob->length = FY_ERROR_BLOB_BYTES;
}

/* --- reading ----------------------------------------------------------------------------------- */

/* A member's blob, being read. */
typedef struct letter {
    fy_reader_t reader;
    fy_builtin_t *service;
    fy_arena_t *arena;
    uint32_t owner;
} letter_t;

static ferry_status_t damaged(const letter_t *letter, ferry_error_t *err) {
    return fy_fail(err, FERRY_CORRUPT, "%s: what member %" PRIu32 " published cannot be read",
                   FY_SERVICE_NAME, letter->owner);
}

/* The bytes that the end touches must be those of its key. */
static bool fits(const fy_end_t *end) {
    int64_t width = (int64_t)(ferry_dtype_bits(end->dtype) / 8);
    uint64_t below = 0;
    uint64_t above = (uint64_t)width;
    for (uint32_t i = 0; i < end->ndim && end->elements > 0; i++) {
        int64_t stride = 0;
        uint64_t far = 0;
        if (__builtin_mul_overflow(end->strides[i], width, &stride)) {
            return false;
        }
        uint64_t step = stride < 0 ? (uint64_t)0 - (uint64_t)stride : (uint64_t)stride;
        uint64_t *side = stride < 0 ? &below : &above;
        if (!fy_mul_u64(step, end->shape[i] - 1, &far) || !fy_add_u64(*side, far, side)) {
            return false;
        }
    }
    if (end->elements == 0) {
        return end->key.reach == FERRY_MEM_NONE;
    }
    return below <= end->offset && end->offset <= end->key.bytes &&
           above <= end->key.bytes - end->offset;
}

static ferry_status_t count_elements(fy_end_t *end, ferry_error_t *err) {
    end->elements = 1;
    for (uint32_t i = 0; i < end->ndim; i++) {
        if (!fy_mul_u64(end->elements, end->shape[i], &end->elements)) {
            return fy_fail(err, FERRY_OVERFLOW, "an end has too many elements");
        }
    }
    return ferry_dtype_bytes(end->dtype, end->elements, &end->bytes, err);
}

static ferry_status_t read_end(letter_t *letter, fy_end_t *end, ferry_error_t *err) {
    fy_reader_t *reader = &letter->reader;
    end->owner = letter->owner;
    end->task_id = fy_read_u64(reader);
    end->peer = (uint32_t)fy_read_at_most(reader, letter->service->size - 1);
    end->dtype = (ferry_dtype_t)fy_read_at_most(reader, FERRY_BOOL);
    end->wire = (ferry_dtype_t)fy_read_at_most(reader, FERRY_BOOL);
    end->key.rank = ferry_group_world_rank(letter->service->group, letter->owner);
    end->key.reach = (uint32_t)fy_read_at_most(reader, FERRY_MEM_OWN);
    end->key.at = fy_read_u64(reader);
    end->key.bytes = fy_read_u64(reader);
    end->offset = fy_read_u64(reader);
    end->ndim = (uint32_t)fy_read_at_most(reader, FERRY_MAX_DIMS);
    uint64_t *shape = fy_arena_alloc(letter->arena, end->ndim + 1, sizeof *shape);
    int64_t *strides = fy_arena_alloc(letter->arena, end->ndim + 1, sizeof *strides);
    if (shape == NULL || strides == NULL) {
        return fy_fail_nomem(err, "what ranks publish");
    }
    for (uint32_t i = 0; i < end->ndim; i++) {
        shape[i] = fy_read_u64(reader);
    }
    for (uint32_t i = 0; i < end->ndim; i++) {
        strides[i] = fy_read_i64(reader);
    }
    end->shape = shape;
    end->strides = strides;
    if (reader->failed || ferry_dtype_bits(end->dtype) == 0) {
        return damaged(letter, err);
    }
    FY_TRY(count_elements(end, err));
    if (end->key.reach != FERRY_MEM_NONE) {
        FY_TRY(fy_mem_check_key(letter->service->world, &end->key, err));
    }
    return fits(end) ? FERRY_OK : damaged(letter, err);
}

static ferry_status_t read_ends(letter_t *letter, fy_end_t **ends, size_t *count, size_t *cap,
                                ferry_error_t *err) {
    uint64_t more = fy_read_at_most(&letter->reader, letter->reader.length);
    if (letter->reader.failed || more > UINT32_MAX) {
        return damaged(letter, err);
    }
    if (!fy_reserve(ends, cap, *count + more, sizeof **ends)) {
        return fy_fail_nomem(err, "what ranks publish");
    }
    for (uint64_t i = 0; i < more; i++) {
        fy_end_t *end = &(*ends)[*count];
        memset(end, 0, sizeof *end);
        end->index = (uint32_t)i;
        FY_TRY(read_end(letter, end, err));
        ++*count;
    }
    return FERRY_OK;
}

/* The two lists grow on the heap and move to the arena when they are whole. */
typedef struct lists {
    fy_end_t *sends;
    size_t sends_cap;
    fy_end_t *recvs;
    size_t recvs_cap;
} lists_t;

static ferry_status_t read_letter(letter_t *letter, lists_t *lists, fy_said_t *said,
                                  ferry_error_t *err) {
    const uint8_t *says = fy_read_bytes(&letter->reader, 1);
    if (says == NULL || *says != SAYS_ENDS) {
        return damaged(letter, err);
    }
    uint32_t size = letter->service->size;
    for (uint32_t member = 0; member < size; member++) {
        said->can_read[letter->owner * size + member] =
            (uint8_t)fy_read_at_most(&letter->reader, 1);
    }
    FY_TRY(read_ends(letter, &lists->sends, &said->nsends, &lists->sends_cap, err));
    FY_TRY(read_ends(letter, &lists->recvs, &said->nrecvs, &lists->recvs_cap, err));
    return letter->reader.at == letter->reader.length ? FERRY_OK : damaged(letter, err);
}

/* The first member that had an error to tell. */
static ferry_status_t find_error(const ferry_blobs_t *blobs, uint32_t size, ferry_error_t *err) {
    for (uint32_t member = 0; member < size; member++) {
        size_t length = 0;
        const uint8_t *bytes = ferry_blobs_get(blobs, member, &length);
        if (length == FY_ERROR_BLOB_BYTES && bytes[0] == SAYS_ERROR) {
            ferry_error_t error;
            memcpy(&error, bytes + 1, sizeof error);
            if (err != NULL) {
                *err = error;
            }
            return error.status;
        }
    }
    return FERRY_OK;
}

ferry_status_t fy_publish_read(fy_builtin_t *service, const ferry_blobs_t *blobs, fy_arena_t *arena,
                               fy_said_t *said_p, ferry_error_t *err) {
    FY_TRY(find_error(blobs, service->size, err));
    memset(said_p, 0, sizeof *said_p);
    said_p->can_read = fy_arena_alloc(arena, (size_t)service->size * service->size, 1);
    ferry_status_t status =
        said_p->can_read == NULL ? fy_fail_nomem(err, "what ranks publish") : FERRY_OK;
    lists_t lists = {0};
    for (uint32_t member = 0; member < service->size && status == FERRY_OK; member++) {
        letter_t letter = {.service = service, .arena = arena, .owner = member};
        letter.reader.bytes = ferry_blobs_get(blobs, member, &letter.reader.length);
        status = read_letter(&letter, &lists, said_p, err);
    }
    if (status == FERRY_OK) {
        said_p->sends = fy_arena_copy(arena, lists.sends, said_p->nsends, sizeof *lists.sends);
        said_p->recvs = fy_arena_copy(arena, lists.recvs, said_p->nrecvs, sizeof *lists.recvs);
        if (said_p->sends == NULL || said_p->recvs == NULL) {
            status = fy_fail_nomem(err, "what ranks publish");
        }
    }
    fy_free(lists.sends);
    fy_free(lists.recvs);
    return status;
}

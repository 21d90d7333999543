/* pack.c - first-fit-decreasing over a tree of bins.
 *
 * The bins are the leaves of a complete binary tree; each node holds the largest room below it, so the
 * first bin with enough room is found in one descent, whatever the number of bins. A bin that never
 * got a piece has room for a whole slot: opening a new one is the same descent.
 *
 * Invariants: room[i] = max(room[2i], room[2i+1]); a bin with max_segments pieces has room 0, and no
 * piece has 0 bytes, so it takes no more. */
#include "sched/pack.h"

#include "base/checked.h"
#include "base/memory.h"

void fy_packer_init(fy_packer_t *packer, uint64_t slot_bytes, uint32_t max_segments) {
    *packer = (fy_packer_t){.slot_bytes = slot_bytes, .max_segments = max_segments};
}

void fy_packer_fini(fy_packer_t *packer) {
    fy_free(packer->room);
    fy_free(packer->used);
}

/* The most bins that first fit opens for n pieces of `total` bytes. Of two bins that are not full by
 * count, the later one's first piece did not fit into the earlier: together they hold more than a
 * slot. So there are at most 2 * total/slot + 1 of those, and n / max_segments of the others. */
static size_t most_bins(const fy_packer_t *packer, size_t n, uint64_t total) {
    uint64_t slots = total / packer->slot_bytes;
    if (slots >= n / 2) {
        return n;
    }
    return (size_t)fy_min_u64(n, 2 * slots + 1 + n / packer->max_segments);
}

/* Empties the tree and gives it at least `bins` leaves; 0 when memory is out. */
static size_t tree_reset(fy_packer_t *packer, size_t bins) {
    size_t leaves = 1;
    while (leaves < bins) {
        leaves *= 2;
    }
    if (!fy_reserve(&packer->room, &packer->room_cap, 2 * leaves, sizeof *packer->room) ||
        !fy_reserve(&packer->used, &packer->used_cap, leaves, sizeof *packer->used)) {
        return 0;
    }
    for (size_t i = 1; i < 2 * leaves; i++) {
        packer->room[i] = packer->slot_bytes;
    }
    for (size_t i = 0; i < leaves; i++) {
        packer->used[i] = 0;
    }
    return leaves;
}

/* Puts `bytes` into the first bin that takes it, and says which. */
static size_t tree_put(fy_packer_t *packer, size_t leaves, uint64_t bytes) {
    uint64_t *room = packer->room;
    size_t node = 1;
    while (node < leaves) {
        node *= 2;
        node += room[node] < bytes ? 1 : 0;
    }
    size_t bin = node - leaves;
    room[node] -= bytes;
    packer->used[bin]++;
    if (packer->used[bin] == packer->max_segments) {
        room[node] = 0;
    }
    for (node /= 2; node > 0; node /= 2) {
        uint64_t most = fy_max_u64(room[2 * node], room[2 * node + 1]);
        if (room[node] == most) {
            break;
        }
        room[node] = most;
    }
    return bin;
}

static void swap_key_and_value(fy_keyed_t *entries, size_t n) {
    for (size_t i = 0; i < n; i++) {
        entries[i] = (fy_keyed_t){.key = entries[i].value, .value = entries[i].key};
    }
}

bool fy_pack(fy_packer_t *packer, fy_keyed_t *pieces, fy_keyed_t *scratch, size_t n) {
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        total += pieces[i].key;
    }
    if (total <= packer->slot_bytes && n <= packer->max_segments) {
        for (size_t i = 0; i < n; i++) {
            pieces[i].key = 0;
        }
        return true;
    }
    size_t leaves = tree_reset(packer, most_bins(packer, n, total));
    if (leaves == 0) {
        return false;
    }
    /* Largest first; the complement turns the ascending sort around and keeps it stable. */
    for (size_t i = 0; i < n; i++) {
        pieces[i].key = ~pieces[i].key;
    }
    fy_radix_sort(pieces, scratch, n);
    for (size_t i = 0; i < n; i++) {
        pieces[i].key = tree_put(packer, leaves, ~pieces[i].key);
    }
    /* By item, then by bin: the second sort is stable. */
    swap_key_and_value(pieces, n);
    fy_radix_sort(pieces, scratch, n);
    swap_key_and_value(pieces, n);
    fy_radix_sort(pieces, scratch, n);
    return true;
}

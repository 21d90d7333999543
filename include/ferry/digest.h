/* digest.h - a digest of a tensor that adds up from its parts.
 *
 * Every byte counts with its value and its place in the whole tensor, and digests of parts are added (as exclusive
 * or). So the parts of any cut, in any order, by whomever, combine to the digest of the whole: two folders can be
 * compared whatever their sharding, reading each byte once.
 *
 * The whole tensor is a string of bytes, row-major. It is taken as the polynomial over GF(2) whose coefficients are
 * its bits, lowest first, and reduced modulo two polynomials of degree 64; sealing puts what the tensor is (dtype,
 * shape) in front of it. docs/formats/digest.md has the definition to the bit, and what follows from it: one
 * flipped bit, two of them, any change within 16 bytes in a row, two elements that changed places and one change
 * repeated at equal distances are always noticed; of all other differences one in 2^128 is not. The moduli are
 * fixed: this guards against accidents, not against someone who wants two tensors to look alike.
 *
 * The digest does not know which bytes it has seen. A byte that is never added counts as zero, one that is added
 * twice cancels out; to add each byte once (of replicated parts, one) is up to the caller.
 *
 * Ownership: a digest is plain memory; copy it freely.
 * Thread safety: no shared state; threads may sum parts apart and join them. */
#ifndef FERRY_DIGEST_H
#define FERRY_DIGEST_H

#include <ferry/view.h>

FERRY_BEGIN_DECLS

typedef struct ferry_digest {
    uint64_t low;  /* modulo the first */
    uint64_t high; /* modulo the second */
} ferry_digest_t;

#define FERRY_DIGEST_TEXT_MAX 33 /* 32 hex digits and a zero */

/* Adds a part: `view` is the box of the whole tensor (of `shape`, with the view's dtype and ndim) that starts at `lo`.
 * The view may have any strides. Start from all zero. FERRY_INVALID when the box leaves the tensor, FERRY_OVERFLOW when
 * the tensor passes 63 bits, FERRY_UNSUPPORTED for memory that the CPU cannot address; the digest is then as it was.
 * Runs of 64 bytes and more that are without gaps in the view and in the whole cost little more than their bytes. */
FERRY_API ferry_status_t ferry_digest_add(ferry_digest_t *digest, const ferry_view_t *view,
                                          const uint64_t *shape, const uint64_t *lo,
                                          ferry_error_t *err);
/* Adds bytes at a place (in bytes) of the whole, for what has no dtype. */
FERRY_API void ferry_digest_add_bytes(ferry_digest_t *digest, const void *bytes, size_t length,
                                      uint64_t at);
/* Parts of one tensor, put together. */
FERRY_API void ferry_digest_join(ferry_digest_t *digest, const ferry_digest_t *part);
/* The digest of the whole tensor, once all parts are in: mixes in what the tensor is. `dtype` is a name, ferry's or
 * any other; NULL is "". Seal once: a sealed digest is for comparing. */
FERRY_API ferry_digest_t ferry_digest_seal(const ferry_digest_t *digest, const char *dtype,
                                           uint32_t ndim, const uint64_t *shape);
FERRY_API bool ferry_digest_equal(const ferry_digest_t *a, const ferry_digest_t *b);
/* 32 hex digits: high, then low. */
FERRY_API void ferry_digest_text(const ferry_digest_t *digest, char text[FERRY_DIGEST_TEXT_MAX]);

FERRY_END_DECLS

#endif

/* file.h - the binary form, shared by encode.c and decode.c. Described in docs/formats/plan.md.
 *
 *   magic       8 bytes "ferryplN"
 *   version     varint
 *   input       planner version, flags, hosts, layouts, tensors
 *   moves       rank of a part, blocks of moves, one block number per tensor
 *   hash        8 bytes: XXH3 of everything before, little-endian
 *
 * A block is the moves of one tensor without the tensor; tensors with equal moves share it, which
 * keeps the file of a large model small. Each plan has exactly one encoding. */
#ifndef FERRY_PLAN_FILE_H
#define FERRY_PLAN_FILE_H

#define FY_PLAN_MAGIC "ferryplN"
#define FY_PLAN_MAGIC_BYTES 8
#define FY_PLAN_HASH_BYTES 8

#endif

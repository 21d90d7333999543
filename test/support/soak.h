/* soak.h - how much a test should do.
 *
 * Tests that draw at random do less in `make test` and their full count in `make soak`, which sets
 * FERRY_SOAK=1 in their environment. */
#ifndef FERRY_TEST_SOAK_H
#define FERRY_TEST_SOAK_H

/* `full` under `make soak`, else `quick`. */
long soak_count(long quick, long full);

#endif

/* soak.c - how much a test should do. */
#include "support/soak.h"

#include <stdlib.h>
#include <string.h>

long soak_count(long quick, long full) {
    const char *soak = getenv("FERRY_SOAK");
    return soak != NULL && strcmp(soak, "1") == 0 ? full : quick;
}

/* version.c - which ferry this is. */
#include <ferry/version.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *ferry_version(void) {
    return TEXT(FERRY_VERSION_MAJOR) "." TEXT(FERRY_VERSION_MINOR) "." TEXT(FERRY_VERSION_PATCH);
}

uint32_t ferry_version_number(void) {
    return FERRY_VERSION_MAJOR * 1000000U + FERRY_VERSION_MINOR * 1000U + FERRY_VERSION_PATCH;
}

/* version.h - which ferry this is.
 *
 * Thread safety: everything here is constant. */
#ifndef FERRY_VERSION_H
#define FERRY_VERSION_H

#include <stdint.h>

#include <ferry/export.h>

FERRY_BEGIN_DECLS

#define FERRY_VERSION_MAJOR 0
#define FERRY_VERSION_MINOR 1
#define FERRY_VERSION_PATCH 0

/* The library's version: as text ("0.1.0"), and as major * 1000000 + minor * 1000 + patch. */
FERRY_API const char *ferry_version(void);
FERRY_API uint32_t ferry_version_number(void);

FERRY_END_DECLS

#endif

/* export.h - how public declarations are marked.
 *
 * The library is built with hidden visibility: what carries FERRY_API is exported, nothing else is.
 * Public headers put their declarations between FERRY_BEGIN_DECLS and FERRY_END_DECLS, so that C++
 * programs may include them as they are.
 *
 * Thread safety: macros only. */
#ifndef FERRY_EXPORT_H
#define FERRY_EXPORT_H

#if defined(__GNUC__)
#define FERRY_API __attribute__((visibility("default")))
#define FERRY_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define FERRY_API
#define FERRY_PRINTF(text, first)
#endif

#ifdef __cplusplus
#define FERRY_BEGIN_DECLS extern "C" {
#define FERRY_END_DECLS }
#else
#define FERRY_BEGIN_DECLS
#define FERRY_END_DECLS
#endif

#endif

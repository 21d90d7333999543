/* sanitizer.h - SANITIZED: 1 in a build with ASan or TSan, where everything is slower and address space is
 * not ours to limit; else 0. */
#ifndef FERRY_TEST_SANITIZER_H
#define FERRY_TEST_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#endif

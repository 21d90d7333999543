# The language and the flags that all of ferry is compiled with.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# With -std=c17 the C library shows nothing but ISO C; this brings POSIX and Linux calls back. It is
# empty, not 1, so that a file may still say `#define _GNU_SOURCE` itself.
add_compile_definitions(_GNU_SOURCE=)

add_compile_options(
    -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Wcast-qual
    $<$<BOOL:${FERRY_WERROR}>:-Werror>)

if(FERRY_SANITIZE)
    # -O1 keeps the property tests quick; the build type stays Debug, so asserts are on.
    add_compile_options(-fsanitize=${FERRY_SANITIZE} -fno-sanitize-recover=all
                        -fno-omit-frame-pointer -O1 -g)
    add_link_options(-fsanitize=${FERRY_SANITIZE})
else()
    add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>:-Wl,--no-undefined>)
endif()

if(FERRY_LIBFUZZER)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "FERRY_LIBFUZZER needs clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

#!/usr/bin/env bash
# Installs into a fresh folder, moves it, and uses it the way others will: through pkg-config, through
# find_package, and from the shell.
set -euo pipefail

fail() {
    printf 'install: %s\n' "$1" >&2
    exit 1
}

equal() { [[ $2 == "$3" ]] || fail "$1 is '$2', not '$3'"; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

cmake --install "$FERRY_BUILD" --prefix "$work/first" >/dev/null
mv first prefix # nothing in it may depend on where it was installed
lib=$work/prefix/lib
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib

for file in bin/ferry include/ferry/ferry.h lib/libferry.a lib/libferry.so share/man/man1/ferry.1 \
    share/bash-completion/completions/ferry; do
    [[ -s prefix/$file ]] || fail "$file is missing or empty"
done

# The library: its name, and what it lets out.
soname=$(objdump -p "$lib/libferry.so" | awk '$1 == "SONAME" { print $2 }')
equal "the soname" "$soname" libferry.so.0
exported=$(nm -D --defined-only "$lib/libferry.so" | awk '{ print $3 }')
grep -qx ferry_version <<<"$exported" || fail "ferry_version is not exported"
if strangers=$(grep -v '^ferry_' <<<"$exported"); then
    fail "exported, but not ferry_*: $strangers"
fi

# A program, built four ways. Each prints the version.
version=$(pkg-config --modversion ferry)
cat >hello.c <<'END'
#include <ferry/ferry.h>
#include <stdio.h>

int main(void) {
    puts(ferry_version());
    return 0;
}
END
cp hello.c hello.cc

read -ra flags < <(pkg-config --cflags --libs ferry)
cc -std=c17 -o with-pkg-config hello.c "${flags[@]}"
equal "the version through pkg-config" "$(./with-pkg-config)" "$version"

g++ -std=c++17 -o with-cxx hello.cc "${flags[@]}"
equal "the version in C++" "$(./with-cxx)" "$version"

cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.25)
project(hello LANGUAGES C)
find_package(ferry ${version} REQUIRED)
add_executable(with-shared hello.c)
target_link_libraries(with-shared PRIVATE ferry::ferry)
add_executable(with-static hello.c)
target_link_libraries(with-static PRIVATE ferry::ferry_static)
END
cmake -G Ninja -B build -DCMAKE_PREFIX_PATH="$work/prefix" . >/dev/null
cmake --build build >/dev/null
equal "the version through find_package" "$(build/with-shared)" "$version"
equal "the version of the static library" "$(LD_LIBRARY_PATH='' build/with-static)" "$version"

# The tool.
[[ $(prefix/bin/ferry --version) == *"$version"* ]] || fail "ferry --version does not say $version"
bash -n prefix/share/bash-completion/completions/ferry
grep -q '^\.TH FERRY 1' prefix/share/man/man1/ferry.1 || fail "ferry.1 does not begin as a man page"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# builds.sh [--list | ROW...]: builds symmem as others build it, every warning an error, and runs the README's
# program with two ranks on what was built. A row is a compiler and a build type, or a way to use symmem from
# another project. Prints a line for each row; the last line counts them. A compiler that this machine lacks
# is skipped. A row takes about a minute.
set -u
tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
root=${tests%/*}
unset RANK WORLD_SIZE LOCAL_RANK CC CXX CFLAGS CXXFLAGS LDFLAGS "${!SYMMEM_@}"
export SYMMEM_TIMEOUT_SCALE=4

make_build() { cmake --build "$work/build" --parallel "$(getconf _NPROCESSORS_ONLN)" "$@"; } # OPTIONS...

# The library and the emulation alone.
builds() { # CMAKE_OPTIONS...
    cmake -S "$root" -B "$work/build" -DSYMMEM_WERROR=ON -DSYMMEM_GPU_BACKENDS=OFF -DSYMMEM_TESTS=OFF "$@" && make_build
}

# And the suite.
builds_suite() { # CMAKE_OPTIONS...
    cmake -S "$root" -B "$work/build" -DSYMMEM_WERROR=ON -DSYMMEM_GPU_BACKENDS=OFF "$@" &&
        make_build --target symmem symmem_backend_shm symmem-conformance
}

program_runs() { # PROGRAM
    SYMMEM_BACKEND=shm timeout 120 "$root/core/symmem-run.sh" 2 "$1" | grep 'rank 0 holds 42, written by rank 1'
}

# The program on the libraries of the build tree, shared and static.
build_works() { # COMPILER_AND_OPTIONS...
    "$@" -I "$root/core/include" "$tests/example.c" -L "$work/build/lib" -lsymmem -Wl,-rpath,"$work/build/lib" \
        -o "$work/build/bin/shared" && program_runs "$work/build/bin/shared" &&
        "$@" -I "$root/core/include" "$tests/example.c" "$work/build/libsymmem_static.a" -pthread -ldl \
            -o "$work/build/bin/static" && program_runs "$work/build/bin/static"
}

# --- rows: 77 is "not possible here" -----------------------------------------------------------------

compiler() { # COMPILER BUILD_TYPE
    command -v "$1" >/dev/null || return 77
    builds -DCMAKE_C_COMPILER="$1" -DCMAKE_BUILD_TYPE="$2" && build_works "$1"
}

# Link-time optimization, whose warnings come at the end; a compiler cache knows nothing of it.
lto() { # COMPILER
    command -v "$1" >/dev/null || return 77
    builds -DCMAKE_C_COMPILER="$1" -DCMAKE_BUILD_TYPE=Release -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON \
        -DCMAKE_SHARED_LINKER_FLAGS=-Werror -DCMAKE_MODULE_LINKER_FLAGS=-Werror -DCMAKE_C_COMPILER_LAUNCHER= &&
        build_works "$1" -flto
}

# Several files compiled as one, which a parent project may ask for.
row_unity() { builds -DCMAKE_UNITY_BUILD=ON; }

row_library_without_tests() {
    builds || return 1
    [ -z "$(find "$work/build/bin" -type f ! -name symmem-run)" ]
}

row_suite_without_gpu_backends() {
    builds_suite && [ -x "$work/build/bin/symmem-conformance" ] &&
        [ -z "$(find "$work/build/lib" -name 'libsymmem_backend_cuda*' -o -name 'libsymmem_backend_nccl*')" ]
}

# The suite by the newest clang, as what is not the compiler of all else.
row_suite_newest_clang() {
    local newest
    newest=$(compgen -c clang- | grep -xE 'clang-[0-9]+' | sort -t- -k2n | tail -n 1)
    [ -n "$newest" ] || return 77
    builds_suite -DCMAKE_C_COMPILER="$newest" -DCMAKE_BUILD_TYPE=Release
}

# shellcheck disable=SC2016 # they are CMake's variables
parent() { # CMAKE_LINES: a project that has symmem inside itself
    mkdir "$work/parent" && cp "$tests/example.c" "$work/parent" && printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' \
        'project(parent LANGUAGES C)' "$1" 'foreach(kind symmem static)' '  add_executable(app_${kind} example.c)' \
        '  target_link_libraries(app_${kind} PRIVATE symmem::${kind})' 'endforeach()' >"$work/parent/CMakeLists.txt" &&
        cmake -S "$work/parent" -B "$work/build" -DSYMMEM_GPU_BACKENDS=OFF && make_build
}

parent_works() {
    [ ! -e "$work/build/bin/symmem-conformance" ] || return 1
    program_runs "$work/build/app_symmem" && SYMMEM_BACKEND_PATH=$(dirname -- "$(find "$work/build" -name libsymmem_backend_shm.so)") \
        program_runs "$work/build/app_static"
}

row_add_subdirectory() { parent "add_subdirectory($root symmem)" && parent_works; }

# The parent's own warnings hold for what is inside it.
row_add_subdirectory_strict() {
    parent "add_compile_options(-Wall -Wextra -Wpedantic -Werror)
add_subdirectory($root symmem)" && parent_works
}


# As from a release's archive.
row_fetch_content() {
    tar -C "$root" -czf "$work/symmem.tar.gz" --exclude='./build*' --exclude=./tests/pytorch/build --exclude=./.git \
        --exclude=./shared . &&
        parent "include(FetchContent)
FetchContent_Declare(symmem URL $work/symmem.tar.gz)
FetchContent_MakeAvailable(symmem)" && parent_works
}

# The library alone, installed, moved, and used by each way that a user has.
installed() {
    builds -DCMAKE_INSTALL_PREFIX="$work/first" && cmake --install "$work/build" && mv "$work/first" "$work/prefix" &&
        rm -rf "${work:?}/build"
}

package_config() { PKG_CONFIG_PATH=$(echo "$work"/prefix/lib*/pkgconfig) pkg-config "$@" symmem; }

# shellcheck disable=SC2046 # words are what pkg-config prints
by_package_config() { # COMPILER_AND_OPTIONS...
    "$@" "$tests/example.c" $(package_config --cflags --libs) -Wl,-rpath,"$(package_config --variable=libdir)" \
        -o "$work/prefix/bin/program" && program_runs "$work/prefix/bin/program"
}

row_install_pkg_config() {
    installed && by_package_config cc -Wall -Wextra -Werror && SYMMEM_BACKEND=shm "$work/prefix/bin/symmem-run" 2 \
        "$work/prefix/bin/program" && man -M "$work/prefix/share/man" symmem_alloc | grep -q symmem_alloc
}

# shellcheck disable=SC2016 # they are CMake's variables
row_install_find_package() {
    installed && mkdir "$work/user" && cp "$tests/example.c" "$work/user" || return 1
    printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(user C)' 'find_package(symmem REQUIRED)' \
        'foreach(kind symmem static)' '  add_executable(app_${kind} example.c)' \
        '  target_link_libraries(app_${kind} PRIVATE symmem::${kind})' 'endforeach()' >"$work/user/CMakeLists.txt"
    cmake -S "$work/user" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" && make_build &&
        program_runs "$work/build/app_symmem" && SYMMEM_BACKEND_PATH=$(echo "$work"/prefix/lib*/symmem) \
        program_runs "$work/build/app_static"
}

row_cxx_user() {
    installed && by_package_config g++ -std=c++98 -pedantic -Wall -Wextra -Wno-long-long -Wno-declaration-after-statement \
        -Werror -x c++ && by_package_config g++ -std=c++20 -Wall -Wextra -Werror -x c++ &&
        { ! command -v clang++ >/dev/null || by_package_config clang++ -std=c++17 -Wall -Wextra -Werror -x c++; }
}

# Another C library: its headers, the kernel's and DLPack's.
row_musl() {
    command -v musl-gcc >/dev/null || return 77
    local headers=$work/headers name from
    mkdir "$headers" || return 1
    for name in linux asm asm-generic dlpack; do
        for from in /usr/include/"$name" /usr/include/*-linux-gnu/"$name"; do
            [ ! -d "$from" ] || ln -sfn "$from" "$headers/$name"
        done
    done
    builds -DCMAKE_C_COMPILER=musl-gcc -DDLPACK_INCLUDE_DIR="$headers" "-DCMAKE_C_FLAGS=-isystem $headers" &&
        build_works musl-gcc -isystem "$headers"
}

# --- all of them -------------------------------------------------------------------------------------

rows=()
declare -A does=()
row() { rows+=("$1") && does[$1]="${*:2}"; } # NAME COMMAND...
for version in 12 13 14 15; do row "gcc-$version" compiler "gcc-$version" Release; done
for version in 14 15 16 17 18 19; do row "clang-$version" compiler "clang-$version" Release; done
for name in gcc clang; do
    for type in Debug MinSizeRel RelWithDebInfo; do row "$name-$type" compiler "$name" "$type"; done
    row "$name-LTO" lto "$name"
done
while read -r name; do row "${name//_/-}" "row_$name"; done < <(compgen -A function | sed -n 's/^row_//p')

if [ "${1:-}" = --list ]; then
    printf '%s\n' "${rows[@]}"
    exit
fi
[ $# -eq 0 ] || rows=("$@")
folder=$(mktemp -d) || exit 1
trap 'rm -rf -- "$folder"' EXIT
passed=0 failed=0 skipped=0
for name in "${rows[@]}"; do
    [ -n "${does[$name]:-}" ] || { echo "builds.sh: no row $name, see --list" >&2 && exit 2; }
    work=$folder/$name began=$SECONDS
    mkdir "$work" || exit 1
    read -ra command <<<"${does[$name]}"
    "${command[@]}" >"$folder/log" 2>&1 </dev/null
    case $? in
    0) result=passed && passed=$((passed + 1)) ;;
    77) result="skipped, not here" && skipped=$((skipped + 1)) ;;
    *) result=FAILED && failed=$((failed + 1)) ;;
    esac
    printf '%-30s %4d s  %s\n' "$name" "$((SECONDS - began))" "$result"
    [ "$result" != FAILED ] || grep -E 'error|FAILED|Error' "$folder/log" | head -n 5 | sed 's/^/    | /'
    [ "$result" != FAILED ] || tail -n 20 "$folder/log" | sed 's/^/    | /'
    rm -rf -- "$work"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

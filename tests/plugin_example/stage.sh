# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: a stranger's view. symmem is installed, the tree it came from is out of
# sight, and the example backend is built and tested from what was installed. Sourced by
# tests/stages.sh.

# Where namespaces are permitted the source tree is hidden and names are private; elsewhere the checks
# for its path have to do, and runs wait for each other, lest one be blamed for another's names.
plugin_outside() { # FOLDER COMMAND...
    local folder=$1 mounts="ip link set lo up && mount -t tmpfs tmpfs '$root' &&
        mount -t tmpfs -o size=2g,mode=1777 tmpfs /dev/shm"
    shift
    local bare=(env -i -C "$folder" PATH="$PATH" HOME="$folder" TMPDIR="$folder/tmp" LC_ALL=C.UTF-8
        SYMMEM_TIMEOUT_SCALE="$SYMMEM_TIMEOUT_SCALE")
    "${plugin_namespace[@]}" sh -c \
        "[ \$# -gt 0 ] && ${plugin_namespace:+$mounts &&} exec \"\$@\"" sh "${bare[@]}" "$@"
}

plugin_find_namespace() {
    for plugin_namespace in "unshare -mn" "unshare -Urmn"; do
        read -ra plugin_namespace <<<"$plugin_namespace"
        ! "${plugin_namespace[@]}" mount -t tmpfs tmpfs /mnt 2>/dev/null || return 0
    done
    plugin_namespace=()
    skip "source tree hidden" "namespaces are not permitted here"
}

# Installed in one place, used in another: nothing may depend on where that is.
plugin_install() { # FOLDER
    cmake --install build-gcc --prefix "$1/first" && mv "$1/first" "$1/prefix" &&
        cp -R "$1/prefix/share/doc/symmem/plugin_example" "$1/src" &&
        cp tests/example.c "$1/src" && mkdir "$1/tmp"
}

# What was installed, and built from it, has no path of the source tree. Debug information apart,
# which tells where a library's source was.
plugin_no_trace() { # FOLDER
    ! grep -rIlF -- "$root" "$1/prefix" "$1/build" || return 1
    local file
    for file in "$1"/prefix/bin/* "$1"/prefix/lib*/*.so "$1"/prefix/lib*/symmem/*.so; do
        ! readelf -d "$file" | grep -F -- "$root" || return 1
    done
    ! strings -a "$1/build/libsymmem_backend_example.so" | grep -F -- "$root"
}

plugin_is_small() { # FOLDER
    [ "$(wc -l <"$1/src/backend.c")" -le 400 ] || return 1
    # Of this project it knows one header, and it exports one symbol.
    [ "$(grep -h '^#include [<"]symmem' "$1/src/backend.c")" = '#include <symmem/backend.h>' ] &&
        ! grep -n '^#include "' "$1/src/backend.c" &&
        [ "$(nm -D --defined-only "$1/build/libsymmem_backend_example.so" |
            awk '{ print $3 }')" = symmem_backend_entry ]
}

# The README's program, compiled as its words say, on the backend given.
plugin_program() { # FOLDER BACKEND COMPILER AND OPTIONS
    local folder=$1 backend=$2
    shift 2
    # shellcheck disable=SC2016
    plugin_outside "$folder" sh -c 'export PKG_CONFIG_PATH=$1 SYMMEM_BACKEND=$2; shift 2
        "$@" -Wall -Wextra -Werror src/example.c $(pkg-config --cflags --libs symmem) \
            -Wl,-rpath,"$(pkg-config --variable=libdir symmem)" -o tmp/program || exit 1
        prefix/bin/symmem-run 2 tmp/program >tmp/out && cat tmp/out &&
            grep -q "rank 0 holds 42, written by rank 1" tmp/out' sh \
        "$(echo "$folder"/prefix/lib*/pkgconfig)" "$backend" "$@"
}

# The same by CMake. A version that is not there must not be found.
plugin_cmake_program() { # FOLDER
    local version configure=(cmake -S program -B program/build -DCMAKE_PREFIX_PATH="$1/prefix")
    mkdir -p "$1/program" && cp tests/example.c "$1/program" || return 1
    for version in 99 0.1; do
        printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(program C)' \
            "find_package(symmem $version REQUIRED)" 'add_executable(program example.c)' \
            'target_link_libraries(program PRIVATE symmem::symmem)' >"$1/program/CMakeLists.txt"
        if [ "$version" = 99 ]; then
            ! plugin_outside "$1" "${configure[@]}" || return 1
        fi
    done
    plugin_outside "$1" "${configure[@]}" && plugin_outside "$1" cmake --build program/build &&
        plugin_outside "$1" env SYMMEM_BACKEND=shm prefix/bin/symmem-run 2 program/build/program |
        grep 'rank 0 holds 42, written by rank 1'
}

# All that is installed of the kernels, from C++.
plugin_kernels_from_cxx() { # FOLDER
    local header
    mkdir -p "$1/kernels" || return 1
    for header in "$1"/prefix/include/symmem/kernels/{,cpu/,reference/}*.h; do
        printf '#include <%s>\n' "${header#"$1/prefix/include/"}"
    done >"$1/kernels/kernels.cc"
    cat >>"$1/kernels/kernels.cc" <<'EOF'
int main() {
    const float in[] = {1, 2}, other[] = {3, 4};
    float sum[2] = {}, reference[2] = {};
    const void *const sources[] = {in, other};
    void *const results[] = {sum};
    symmem_cpu_reduce_args args = {};
    args.dsts = results, args.dst_count = 1, args.srcs = sources, args.src_count = 2, args.count = 2;
    symmem_cpu_reduce_find(SYMMEM_CPU_BEST, SYMMEM_FLOAT32, SYMMEM_SUM)(&args);
    symmem_reference_reduce(reference, sources, 2, 2, SYMMEM_FLOAT32, SYMMEM_SUM);
    const void *const volatile collectives[] = {
        (void *)symmem_cpu_collective, (void *)symmem_cpu_all_gather, (void *)symmem_cpu_all_to_all,
        (void *)symmem_cpu_broadcast, (void *)symmem_cpu_copy};
    return collectives[0] == nullptr || sum[1] != 6 || reference[0] != 4;
}
EOF
    printf '%s\n' 'cmake_minimum_required(VERSION 3.22)' 'project(kernels CXX)' 'find_package(symmem REQUIRED)' \
        'add_executable(kernels kernels.cc)' 'target_link_libraries(kernels PRIVATE symmem::kernels_cpu)' \
        >"$1/kernels/CMakeLists.txt"
    plugin_outside "$1" cmake -S kernels -B kernels/build -DCMAKE_PREFIX_PATH="$1/prefix" &&
        plugin_outside "$1" cmake --build kernels/build && plugin_outside "$1" kernels/build/kernels
}

plugin_suite() { # FOLDER LOG OPTIONS...
    local folder=$1 log=$2
    shift 2
    plugin_outside "$folder" "${in_memory[@]}" timeout -k 15 "$run_limit" prefix/bin/symmem-conformance --no-large "$@" \
        >"$log" 2>&1 </dev/null
    echo "$?" >"$log.status"
}

# What the guide says about collectives: a few lines and the installed CPU kernels.
plugin_collectives() { # FOLDER
    # shellcheck disable=SC2016
    plugin_outside "$1" sh -c 'export PKG_CONFIG_PATH=$1
        src/add_collectives.sh src/GUIDE.md src/backend.c >tmp/coll.c &&
        cc -std=gnu11 -O2 -Wall -Wextra -Wno-unused-parameter -Werror -shared -fPIC -fvisibility=hidden \
            $(pkg-config --cflags symmem) tmp/coll.c -L"$(pkg-config --variable=libdir symmem)" \
            -lsymmem_kernels_cpu -o tmp/coll.so' sh "$(echo "$1"/prefix/lib*/pkgconfig)" &&
        plugin_outside "$1" timeout -k 15 "$run_limit" prefix/bin/symmem-conformance \
            --backend tmp/coll.so --ranks 2 --no-large --filter 'coll.*,ops*'
}

# A run counts as passed only if it says so about the profile that it was made for.
plugin_judge() { # NAME LOG PROFILE
    local status
    status=$(cat "$2.status")
    if ! grep -qE "^profiles passed in (full|part): ([^,]*, )*$3 \(" "$2"; then
        status=1
    fi
    add_run "$1" "$2" "$status"
}

# The long ones in two halves, by name: they wait far more than they work.
plugin_runs() { # FOLDER
    local run options log=$logs/plugin.suite example=build/libsymmem_backend_example.so
    local -A runs=(
        ["example backend, core, 4 ranks, a to m"]="$example core --ranks 4 --filter [a-m]*"
        ["example backend, core, 4 ranks, n to z"]="$example core --ranks 4 --filter [!a-m]*"
        ["example backend, core, 2 ranks"]="$example core --ranks 2"
        ["example backend, core, 1 rank"]="$example core --ranks 1"
        ["installed CPU backend, 2 ranks, a to m"]="shm multicast --ranks 2 --filter [a-m]*"
        ["installed CPU backend, 2 ranks, n to z"]="shm streams --ranks 2 --filter [!a-m]*"
    )
    for run in "${!runs[@]}"; do
        read -ra options <<<"${runs[$run]}"
        [ "${options[1]}" != core ] || options+=(--profile core)
        plugin_suite "$1" "$log.${run//[ ,]/_}.log" --backend "${options[0]}" "${options[@]:2}" &
        [ "${#plugin_namespace[@]}" -gt 0 ] || wait
    done
    wait
    while IFS= read -r run; do
        read -ra options <<<"${runs[$run]}"
        plugin_judge "$run" "$log.${run//[ ,]/_}.log" "${options[1]}"
    done < <(printf '%s\n' "${!runs[@]}" | sort)
}

# A plug-in of tests/plugins, built from the installed files, and what its ctest runs: a program of its own
# and cases of the suite, which its engine's launcher starts.
plugin_of_engine() { # FOLDER NAME PLUGIN CMAKE_OPTIONS...
    local folder=$1 name=$2 plugin=plugins.$2/$3
    shift 3
    cp -R tests/plugins "$folder/plugins.$name" &&
        plugin_outside "$folder" cmake -S "$plugin" -B "$plugin/build" \
            -DCMAKE_PREFIX_PATH="$folder/prefix" "$@" &&
        plugin_outside "$folder" cmake --build "$plugin/build" &&
        plugin_outside "$folder" timeout -k 15 "$run_limit" \
            ctest --test-dir "$plugin/build" --output-on-failure
}

# With each MPI that is here, and with Open MPI's OpenSHMEM.
plugin_engines() { # FOLDER
    local name flags open_mpi=--oversubscribe
    [ "$(id -u)" != 0 ] || open_mpi+=";--allow-run-as-root"
    for name in openmpi mpich; do
        flags=
        [ "$name" = mpich ] || flags=$open_mpi
        if command -v "mpicc.$name" "mpirun.$name" >/dev/null; then
            check "plug-in over MPI, $name" plugin_of_engine "$1" "$name" mpi \
                -DMPI_C_COMPILER="$(command -v "mpicc.$name")" \
                -DMPIEXEC_EXECUTABLE="$(command -v "mpirun.$name")" -DMPIEXEC_PREFLAGS="$flags"
        else
            skip "plug-in over MPI, $name" "not installed"
        fi
    done
    if command -v oshcc oshrun >/dev/null; then
        check "plug-in over OpenSHMEM" plugin_of_engine "$1" oshmem openshmem \
            -DCMAKE_C_COMPILER="$(command -v oshcc)" -DOSHRUN_FLAGS="$open_mpi"
    else
        skip "plug-in over OpenSHMEM" "not installed"
    fi
    plugin_nvshmem "$1"
}

# NVSHMEM from the folder that SYMMEM_NVSHMEM names, or from Python's package; on fakes of it and the driver.
plugin_nvshmem() { # FOLDER
    local home=${SYMMEM_NVSHMEM:-}
    [ -n "$home" ] || home=$(python3 -c 'import nvidia.nvshmem as n; print(n.__path__[0])' 2>/dev/null)
    if [ ! -e "$home/include/nvshmem_host.h" ]; then
        skip "plug-in over NVSHMEM" "not installed"
    elif [ ! -e build-gcc/fakes/libcuda.so.1 ] || [ ! -e build-gcc/fakes/libnvshmem_host.so.3 ]; then
        skip "plug-in over NVSHMEM" "no CUDA headers or nvcc on this machine"
    else
        check "plug-in over NVSHMEM" plugin_nvshmem_runs "$1" "$home"
    fi
}

plugin_nvshmem_runs() { # FOLDER NVSHMEM
    cp -RL build-gcc/fakes "$1/fakes" && cp -RL "$2" "$1/nvshmem" &&
        plugin_of_engine "$1" nvshmem nvshmem -DNVSHMEM_HOME="$1/nvshmem" -DLIBRARIES="$1/fakes"
}

plugin_is_mini() { # FOLDER
    [ "$(wc -l <"$1/plugins.mini/memfd_mini/backend.c")" -le 100 ]
}

stage_plugin() {
    made gcc || return
    local folder plugin_namespace=()
    folder=$(mktemp -d "/tmp/plugin-symmem.XXXXXX") || return
    plugin_find_namespace
    if check install plugin_install "$folder" &&
        check "configure the example" plugin_outside "$folder" \
            cmake -S src -B build -DCMAKE_PREFIX_PATH="$folder/prefix" &&
        check "build the example" plugin_outside "$folder" cmake --build build; then
        check "no path of the source tree" plugin_no_trace "$folder"
        check "at most 400 lines, one header, one symbol" plugin_is_small "$folder"
        check "program in C" plugin_program "$folder" shm cc -std=gnu11
        check "program in C++" plugin_program "$folder" "$folder/build/libsymmem_backend_example.so" \
            g++ -std=c++17 -x c++
        check "program by CMake" plugin_cmake_program "$folder"
        check "the kernels from C++" plugin_kernels_from_cxx "$folder"
        check "the guide's collectives" plugin_collectives "$folder"
        plugin_runs "$folder"
        check "a memory backend on the kit" plugin_of_engine "$folder" mini memfd_mini &&
            check "in at most 100 lines" plugin_is_mini "$folder"
        plugin_engines "$folder"
    fi
    rm -rf -- "$folder"
}

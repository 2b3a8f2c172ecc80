# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage "fuzz" of test.sh: each target for a few seconds, contained, from the corpus that is kept.
# The whole corpus is replayed without libFuzzer by the unit tests of every other stage.

fuzz_seconds=${SYMMEM_FUZZ_SECONDS:-4} # for each target
fuzz_seed=${SYMMEM_FUZZ_SEED:-1}

# The build of the other stages would take time that this one does not have.
make_fuzz() {
    clang_links_libfuzzer || return 0 # the stage says so
    build_target=fuzzers build_in build-fuzz -DCMAKE_C_COMPILER=clang -DSYMMEM_FUZZ=ON \
        -DSYMMEM_SANITIZE=address,undefined "${sanitized[@]}"
}

# Sanitizer and fuzzer runtimes are one package on Debian and Ubuntu, but not everywhere.
clang_links_libfuzzer() {
    local program
    program=$(mktemp) || return 1
    echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
        clang -fsanitize=fuzzer -x c - -o "$program" 2>/dev/null
    local status=$?
    rm -f "$program"
    return "$status"
}

fuzz_run() { # TARGET
    local log=$logs/fuzz.run.$1
    "${prefix[@]}" tests/fuzz/run.sh --build build-fuzz --seconds "$fuzz_seconds" \
        --seed "$fuzz_seed" "$1" >"$log.log" 2>&1
    echo "$?" >"$log.status"
}

fuzz_result() { # TARGET
    cat "$logs/fuzz.run.$1.log"
    [ "$(cat "$logs/fuzz.run.$1.status" 2>/dev/null)" = 0 ]
}

stage_fuzz() {
    if ! clang_links_libfuzzer; then
        skip fuzz "this clang has no libFuzzer"
        return
    fi
    made fuzz || return
    sanitizer_prefix
    local targets=() target lanes
    for target in tests/fuzz/fuzz_*.c; do
        target=${target##*/fuzz_}
        targets+=("${target%.c}")
    done
    lanes=$(getconf _NPROCESSORS_ONLN)
    [ "$lanes" -le 4 ] || lanes=4
    rm -f "$logs"/fuzz.run.*.status
    in_lanes "$lanes" fuzz_run "${targets[@]}"
    for target in "${targets[@]}"; do
        check "fuzz $target" fuzz_result "$target"
    done
    prefix=()
}

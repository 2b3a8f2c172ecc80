#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [--build FOLDER] [--seconds N] [--seed N] [--keep] TARGET...: runs libFuzzer on targets one
# after the other, N seconds each (default 60), from their corpus. An input that breaks a target is
# printed in base64, so that it can be replayed from a log alone:
#   base64 -d <<< '...' | build/bin/fuzz_TARGET
# --keep: afterwards the inputs that reach code which the corpus does not reach are in
# tests/fuzz/corpus/TARGET.txt, too.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 2
build=$here/../../build-fuzz seconds=60 seed=1 keep=
while [ "$#" -gt 0 ]; do
    case $1 in
    --build) build=$2 && shift ;;
    --seconds) seconds=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    --keep) keep=1 ;;
    -*) echo "usage: run.sh [--build FOLDER] [--seconds N] [--seed N] [--keep] TARGET..." >&2 && exit 2 ;;
    *) break ;;
    esac
    shift
done
build=$(cd -- "$build" && pwd) || exit 2

# Sanitizers whose findings end the process, and what libFuzzer allows an input.
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
limits=(-timeout=20 -rss_limit_mb=1024 -max_len=4096 -verbosity=1)

print_inputs() { # FOLDER PROGRAM
    local input
    for input in "$1"/*; do
        [ -f "$input" ] || continue
        echo "input that breaks it (${input##*/}); to replay: base64 -d <<< '...' | ${2##*/}"
        echo "base64: $(base64 -w 0 "$input")"
    done
}

keep_new() { # TARGET PROGRAM CORPUS WORK
    rm -rf "$4/merged" && cp -r "$3" "$4/merged" && chmod 777 "$4/merged" || return 1
    timeout -k 10 300 nice "$here/contain.sh" "$2" "${limits[@]}" -merge=1 -use_counters=0 \
        "$4/merged" "$4/new" || return 1
    "$here/corpus.sh" pack "$1" "$4/merged"
}

run_target() { # TARGET
    local program=$build/bin/fuzz_$1 work=$build/fuzz/$1 options result=0
    local corpus=$work/corpus # the build unpacks it
    if [ ! -x "$program" ] || [ ! -d "$corpus" ]; then
        echo "run.sh: no target $1 in $build" >&2
        return 2
    fi
    mkdir -p "$work/new" "$work/bad" && chmod 777 "$work/new" "$work/bad" || return 2
    rm -f "$work/bad"/*
    options=("${limits[@]}" "-seed=$seed" "-max_total_time=$seconds" "-artifact_prefix=$work/bad/")
    case $1 in
    exchange | ipc | peer | record) options+=("-dict=$here/dict/wire.dict") ;;
    env | options) options+=("-dict=$here/dict/text.dict") ;;
    esac
    echo "== $1"
    timeout -k 10 "$((seconds + 60))" nice "$here/contain.sh" "$program" "${options[@]}" \
        "$work/new" "$corpus" || {
        result=1
        print_inputs "$work/bad" "$program"
    }
    [ -z "$keep" ] || keep_new "$1" "$program" "$corpus" "$work" || return 2
    return "$result"
}

# In a function: the shell has read all of this file before it runs any.
main() {
    local target status result=0
    for target in "$@"; do
        run_target "$target"
        status=$?
        [ "$status" -le "$result" ] || result=$status
    done
    exit "$result"
}
main "$@"

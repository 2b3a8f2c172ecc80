#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# bad_input.sh CHECK PLUGIN RUN: what must fail on every rank, within its limit, on the
# fakes of NVSHMEM and the driver that LD_LIBRARY_PATH names. RUN is symmem-run.
set -u
[ "$#" -eq 3 ] || { echo "usage: bad_input.sh CHECK PLUGIN RUN" >&2; exit 1; }
check=$1 plugin=$2 run=$3 bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT

expect() { # NAME STATUS WORDS PLUGIN SETTING...: both ranks answer STATUS, one of them with WORDS
    local name=$1 status=$2 words=$3 file=$4 log=$work/log begin=$SECONDS
    shift 4
    if timeout -k 5 60 env "$@" "$run" 2 "$check" "$file" "$status" >"$log" 2>&1 &&
        [ "$(grep -c "^rank [0-9]*: $status: ." "$log")" = 2 ] && grep -q "$words" "$log"; then
        printf 'ok: %s, %d s: %s\n' "$name" "$((SECONDS - begin))" "$(grep -m 1 "$words" "$log")"
    else
        printf 'FAILED: %s is not %s with "%s"\n' "$name" "$status" "$words"
        cat "$log"
        bad=1
    fi
}

sed 's/libnvshmem_host\.so/libnvshmem_hosX.so/g' "$plugin" >"$work/missing.so"
expect "no library" LOAD "libnvshmem_hosX" "$work/missing.so"
expect "an older library" UNSUPPORTED "NVSHMEM 3.1.0, built with" "$plugin" FAKE_NVSHMEM_VERSION=3.1
expect "another major version" UNSUPPORTED "NVSHMEM 4.0.0, built with" "$plugin" FAKE_NVSHMEM_VERSION=4.0
expect "a program that has started it" BACKEND "has started NVSHMEM itself" "$plugin" FAKE_NVSHMEM_STARTED=1
expect "one rank does not start" BACKEND "answered 7" "$plugin" FAKE_NVSHMEM_FAILS=1
expect "a device that it does not find" BACKEND "answered 5" "$plugin" FAKE_NVSHMEM_DEFERS=1
expect "a start that does not return" TIMEOUT "given up" "$plugin" FAKE_NVSHMEM_HANGS=1
expect "two ranks on one device" UNSUPPORTED "have one device" "$plugin" FAKE_CUDA_DEVICES=1
find /dev/shm -maxdepth 1 -name 'symmem-fake-nvshmem*' -newer "$work" -delete # the fake's, of starts that failed
exit "$bad"

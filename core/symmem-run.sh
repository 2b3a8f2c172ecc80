#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# symmem-run N PROGRAM [ARGUMENTS]: see the text of --help below. A signal that ends it ends the ranks.
set -u
help='symmem-run: starts the ranks of a job on this machine

usage: symmem-run N PROGRAM [ARGUMENTS]

Starts N copies of a program as the ranks 0 to N-1 of one job and waits for all of them. Each gets RANK,
LOCAL_RANK and WORLD_SIZE, and SYMMEM_STORE names a folder that exists as long as the job. SYMMEM_BACKEND
chooses the backend, for example shm.

Exit status: 0 if every rank ended with 0, 1 if one of them failed, 2 for wrong arguments.'
case ${1:-} in --help | -h) echo "$help" && exit ;; esac
if [ "$#" -lt 2 ]; then
    echo "usage: symmem-run N PROGRAM [ARGUMENTS]" >&2
    exit 2
fi
count=$1
shift
if ! [[ $count =~ ^[1-9][0-9]{0,3}$ ]] || [ "$count" -gt 1024 ]; then # SYMMEM_MAX_WORLD_SIZE
    echo "symmem-run: not a number of ranks from 1 to 1024: $count" >&2
    exit 2
fi
# In memory, where that is allowed: on a disk ranks may wait for what other programs write.
directory=$(mktemp -d "${TMPDIR:-/dev/shm}/symmem-job.XXXXXX" 2>/dev/null) ||
    directory=$(mktemp -d "${TMPDIR:-/tmp}/symmem-job.XXXXXX") || exit 1
trap 'rm -rf -- "$directory"' EXIT

# What runs in the background gets no Ctrl-C. Those that ended have numbers that may be others' by now.
# shellcheck disable=SC2317 # called by trap
stop() {
    local running left
    for ((left = 50; left >= 0; left--)); do
        mapfile -t running < <(jobs -pr)
        [ "${#running[@]}" -gt 0 ] || break
        case $left in
        50) kill "${running[@]}" 2>/dev/null ;;
        0) kill -KILL "${running[@]}" 2>/dev/null ;;
        esac
        sleep 0.1
    done
    exit 1
}
trap stop HUP INT TERM

export WORLD_SIZE=$count SYMMEM_STORE=file:$directory/store
ranks=()
for ((rank = 0; rank < count; rank++)); do
    RANK=$rank LOCAL_RANK=$rank "$@" &
    ranks+=("$!")
done
result=0
for pid in "${ranks[@]}"; do
    wait "$pid" || result=1
done
exit "$result"

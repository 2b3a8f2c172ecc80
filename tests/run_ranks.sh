#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_ranks.sh N PROGRAM [ARGUMENTS]: starts N copies of a program as ranks 0 to N-1 of one job on
# this machine, waits for all, and fails if one of them failed.
set -u
count=${1:?usage: run_ranks.sh N PROGRAM [ARGUMENTS]}
shift
[[ $count =~ ^[1-9][0-9]*$ ]] || { echo "run_ranks.sh: no number of ranks: $count" >&2; exit 2; }
# In memory, where that is allowed: on a disk ranks may wait for what other programs write.
directory=$(mktemp -d "${TMPDIR:-/dev/shm}/symmem-job.XXXXXX" 2>/dev/null) ||
    directory=$(mktemp -d "${TMPDIR:-/tmp}/symmem-job.XXXXXX") || exit 1
trap 'rm -rf -- "$directory"' EXIT

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

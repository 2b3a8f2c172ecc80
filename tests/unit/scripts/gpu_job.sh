#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu_job.sh: which job gpu.sh believes to be in, from launchers' variables.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../../lib.sh"
failures=0

expect() { # "RANK WORLD" VARIABLES...
    local wanted=$1 found
    shift
    found=$(
        unset RANK WORLD_SIZE "${!PMI@}" "${!OMPI_@}" "${!SLURM_@}"
        for setting in "$@"; do export "${setting?}"; done
        find_job
        # shellcheck disable=SC2154 # set by find_job
        echo "$launched $world"
    )
    [ "$found" != "$wanted" ] || return 0
    echo "with $*: \"$found\", not \"$wanted\""
    failures=$((failures + 1))
}

expect "0 "
expect "3 8" RANK=3 WORLD_SIZE=8
expect "2 4" OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 PMIX_RANK=2
expect "1 2" PMI_RANK=1 PMI_SIZE=2
expect "5 8" SLURM_PROCID=5 SLURM_NTASKS=8
expect "0 " SLURM_PROCID=0 SLURM_NTASKS=1
expect "0 2" RANK=0 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=1
expect "0 1" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1
[ "$failures" -eq 0 ]

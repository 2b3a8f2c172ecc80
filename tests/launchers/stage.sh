# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: ranks that mpirun, srun and torchrun start, without a folder. Sourced by tests/stages.sh.

stage_launchers() {
    made gcc || return
    local launcher log
    for launcher in mpirun srun torchrun; do
        log=$logs/$stage.$launcher.log
        timeout -k 15 200 tests/launchers/check.sh "$launcher" "$root/build-gcc/bin/example" \
            "$root/build-gcc/bin/launcher-rounds" >"$log" 2>&1 </dev/null
        case $? in
        0) check "$launcher" true ;;
        77) skip "$launcher" "$(grep '^skipped' "$log")" ;;
        *) check "$launcher" sh -c 'cat "$1"; false' sh "$log" ;;
        esac
    done
}

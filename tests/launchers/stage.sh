# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: ranks that mpirun, srun and torchrun start, without a folder. Sourced by
# tests/stages.sh.

stage_launchers() {
    made gcc || return
    local launcher log status
    for launcher in mpirun srun torchrun; do
        log=$logs/$stage.$launcher.log
        timeout -k 15 200 tests/launchers/check.sh "$launcher" "$root/build-gcc/bin/example" \
            "$root/build-gcc/bin/launcher-rounds" >"$log" 2>&1 </dev/null
        status=$?
        if [ "$status" -eq 77 ]; then
            skip "$launcher" "$(grep '^skipped' "$log")"
        else
            add_counts "$launcher" "$log" "$status" "$((status == 0))" "$((status != 0))" 0
        fi
    done
}

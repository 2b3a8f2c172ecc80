# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: what the runner says to backends that do harm. Sourced by tests/stages.sh.

stage_bad_backends() {
    made gcc || return
    local log=$logs/$stage.run.log status
    timeout -k 15 "$run_limit" tests/bad_backends/run.sh build-gcc >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" -eq 77 ]; then
        skip bad-backends "$(grep 'cannot be contained' "$log")"
    else
        add_run "bad backends" "$log" "$status"
    fi
}

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: whole jobs in which a call fails or ranks are killed; another sample each day. With
# SYMMEM_SUITE_LONG=1 all of them. Sourced by tests/stages.sh.

stage_faults() {
    made gcc || return
    local walk=(--seconds 35) kills=(--seconds 40 --jobs 3 --ranks "2,8,32") limit=150
    if [ "${SYMMEM_SUITE_LONG:-0}" = 1 ]; then
        walk=() kills=(--jobs 125 --load 20) limit=7200
    fi
    faults_run walk "${walk[@]}"
    faults_run kills "${kills[@]}"
}

faults_run() { # WHAT OPTIONS, limit is the caller's
    local what=$1 log=$logs/$stage.$1.log status
    shift
    timeout -k 15 "$limit" tests/faults/run.sh build-gcc "$what" --limit "$limit" \
        --seed "$(($(date +%s) / 86400))" "$@" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" -eq 77 ]; then
        skip "$what" "$(grep 'cannot be contained' "$log")"
    else
        add_counts "$what" "$log" "$status" "$((status == 0))" "$((status != 0))" 0
        tail -n 12 "$log" | sed 's/^/    /'
    fi
}

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: whole jobs in which a call fails or ranks are killed; another sample each day. With
# SYMMEM_SUITE_LONG=1 all of them. Sourced by tests/stages.sh.

stage_faults() {
    made gcc || return
    local walk=(--seconds 35) joined=(--seconds 15) limit=150
    local kills=(--seconds 40 --jobs 3 --ranks "2,8,32")
    if [ "${SYMMEM_SUITE_LONG:-0}" = 1 ]; then
        walk=() joined=() kills=(--jobs 125 --load 20) limit=7200
    fi
    faults_run walk walk "${walk[@]}"
    faults_run joined walk --backend lib/tests/reach.so "${joined[@]}"
    faults_run kills kills "${kills[@]}"
}

faults_run() { # NAME WHAT OPTIONS, limit is the caller's
    local name=$1 what=$2 log=$logs/$stage.$1.log status
    shift 2
    timeout -k 15 "$limit" tests/faults/run.sh build-gcc "$what" --limit "$limit" \
        --seed "$(($(date +%s) / 86400))" "$@" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" -eq 77 ]; then
        skip "$name" "$(grep 'cannot be contained' "$log")"
    else
        add_counts "$name" "$log" "$status" "$((status == 0))" "$((status != 0))" 0
        tail -n 12 "$log" | sed 's/^/    /'
    fi
}

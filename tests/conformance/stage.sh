# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# Each rank once withheld from everything that waits, at the world sizes where the sets of
# missing ranks change their shape. Small worlds as processes; large ones as threads, which is
# cheaper, if the process may have the descriptors that all ranks together need. Most of the time
# is spent waiting for limits to pass: so several runs go on at once.

# One run; its log and exit status go to files. A subshell: the limit it raises is its own.
withheld_run() ( # RANKS
    local ranks=$1 mode=process filter='withheld.*' log=$logs/$stage.$1
    # Beyond this number a rank's store directory would be most of the work: in memory if possible.
    local scratch=$root/build-logs/$stage.tmp
    local mount="mount -t tmpfs -o size=256m,mode=0700 tmpfs '$scratch' && TMPDIR='$scratch'"
    local namespace=()
    # In a rendezvous each rank holds all ranks' descriptors of two memories; and those of up to 16
    # objects are its own throughout.
    local needed=$((ranks * (2 * ranks + 40) + 500))
    ulimit -n "$(ulimit -Hn)" 2>/dev/null
    if [ "$ranks" -gt 9 ] && [ "$(ulimit -n)" = unlimited ]; then
        mode=thread
    elif [ "$ranks" -gt 9 ] && [ "$(ulimit -n)" -gt "$needed" ]; then
        mode=thread
    elif [ "$ranks" -gt 9 ]; then
        filter='withheld.barrier,withheld.wait_signal'
        namespace=(unshare -m sh -c "$mount exec \"\$@\"" sh)
        unshare -m sh -c "$mount true" 2>/dev/null || namespace=()
    fi
    SYMMEM_SUITE_LONG=1 timeout -k 15 "$run_limit" "${namespace[@]}" "$root/build-gcc/bin/symmem-conformance" \
        --backend shm --ranks "$ranks" --rank-mode "$mode" --filter "$filter" --timeout 400 \
        >"$log.log" 2>&1 </dev/null
    echo "$? $mode" >"$log.status"
)

stage_withheld() {
    made gcc suite.made || return
    mkdir -p "$logs/$stage.tmp"
    rm -f "$logs/$stage".*.status
    # Those first that take long; large worlds work, small ones only wait.
    in_lanes 2 withheld_run 128 72 9 65 8 64 7 63 6 33 32 31 5 4 3 2 1
    local ranks status mode
    for ranks in 1 2 3 4 5 6 7 8 9 31 32 33 63 64 65 72 128; do
        status=1 mode=unknown
        [ ! -f "$logs/$stage.$ranks.status" ] || read -r status mode <"$logs/$stage.$ranks.status"
        add_run "$ranks ranks ($mode)" "$logs/$stage.$ranks.log" "$status"
    done
}

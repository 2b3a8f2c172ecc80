#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# one.sh KIND[@thread] FILTER: the runner on one bad backend. Runs inside the namespaces, in a build folder.
# Afterwards it prints "@status N" and a line "@left ..." for each process that is still there.
set -u
# The tree may have been built in a folder that is not to be seen from here.
export LD_LIBRARY_PATH=$PWD/lib
kind=${1%@*} filter=$2
mode=process
[[ $1 != *@thread ]] || mode=thread
backend=lib/bad/bad.so
if [[ $kind == file:* ]]; then
    backend=${kind#file:}
else
    export SYMMEM_MUTANT=$kind
fi
timeout -k 2 40 bin/symmem-conformance --backend "$backend" --ranks 2 --rank-mode "$mode" \
    --filter "$filter" --timeout 3 --seed 1 --no-large 2>&1
echo "@status $?"
for process in /proc/[0-9]*; do
    pid=${process#/proc/}
    # Process 1 is the namespace's own; this shell's children are gone by then.
    [ "$pid" -eq 1 ] || [ "$pid" -eq "$$" ] || [ "$pid" -eq "$PPID" ] ||
        ! command=$(tr '\0' ' ' 2>/dev/null <"$process/cmdline") ||
        [ -z "$command" ] || echo "@left $pid $command"
done

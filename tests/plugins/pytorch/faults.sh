#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# faults.sh RUNNER BUILD FOLDER: runs the suite on allocators that are wrong on purpose (faulty.cpp). Prints a
# row for each fault with the cases that fail by it alone, which is compared with faults.tsv. Logs go into
# FOLDER. Exit status: 0 if each fault was found by the cases that faults.tsv has for it.
set -u
here=$(dirname -- "${BASH_SOURCE[0]}") runner=$1 build=$2 folder=$3
mkdir -p "$folder" || exit 1
filter='alloc.memory_is_zero,barrier.[!p]*,barrier.pl*,signal.*,rendezvous.size_mismatch*,rendezvous.equal_sizes*'
judge() { # FAULT: writes the names of the cases that do not pass
    SYMMEM_TORCH_ALLOCATOR="WRONG_$1@$build/libsymmem_torch_faulty.so" timeout -k 15 900 "$runner" \
        --backend "$build/libsymmem_backend_torch.so" --ranks 2 --no-large --keep-ranks --filter "$filter" \
        --report "json=$folder/$1.json" >"$folder/$1.log" 2>&1 </dev/null
    jq -r '.results[] | select(.status == "failed" or .status == "error") | .test' "$folder/$1.json" |
        sort -u >"$folder/$1.cases"
}
for fault in NOTHING BARRIER WAIT ZERO SIZES GROUPS; do
    judge "$fault" &
done
wait
bad=0
while IFS=$'\t' read -r fault wanted; do
    [[ $fault != '#'* ]] || continue
    found=$(comm -13 "$folder/NOTHING.cases" "$folder/$fault.cases" | paste -sd' ')
    printf '%s\t%s\n' "$fault" "${found:--}"
    for name in $wanted; do
        [[ " $found " == *" $name "* ]] || bad=1
    done
done <"$here/faults.tsv"
exit "$bad"

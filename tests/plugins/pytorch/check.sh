#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check.sh PREFIX VENV FOLDER: builds the plug-in in FOLDER against the symmem that is installed in PREFIX and
# the torch of VENV (see tests/pytorch/setup.sh), and runs the suite on symmem_torch's allocator and on
# allocators that are wrong on purpose. Exit status: 0 if the cases that failed are those of expected.tsv, and
# each fault was found.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
prefix=$1 folder=$3 runner=$1/bin/symmem-conformance
torch=$("$2/bin/python" -c 'import torch; print(torch.__path__[0])') || exit 1
symmem_torch=$torch/../symmem_torch/lib/libsymmem_torch.so
cmake -S "$here" -B "$folder/build" -DSYMMEM_PREFIX="$prefix" -DSYMMEM_TORCH="$torch" -DSYMMEM_TORCH_CUDA=OFF \
    -DSYMMEM_TORCH_FAULTY="$symmem_torch" && cmake --build "$folder/build" --parallel 2 || exit 1

for part in 1 2; do
    SYMMEM_TORCH_ALLOCATOR=SYMMEM@$symmem_torch timeout -k 15 900 "$runner" \
        --backend "$folder/build/libsymmem_backend_torch.so" --ranks 2 --no-large --keep-ranks --part "$part/2" --seed 1 \
        --profile core,direct-access --report "json=$folder/$part.json" >"$folder/$part.log" 2>&1 </dev/null &
done
wait
tail -n 1 "$folder"/[12].log
bad=0 passed=0 expected=0
while IFS=$'\t' read -r status name; do
    why=
    while IFS=$'\t' read -r pattern reason; do
        # shellcheck disable=SC2053 # a pattern
        [[ $pattern == '#'* || $name != $pattern ]] || why=$reason
    done <"$here/expected.tsv"
    case $status,$why in
    passed,*) passed=$((passed + 1)) ;;
    *,?*) expected=$((expected + 1)) ;;
    *) printf '%s: %s\n' "$status" "$name" && bad=$((bad + 1)) ;;
    esac
done < <(jq -r '.results[] | select(.status != "skipped") | [.status, .test] | @tsv' "$folder"/[12].json)
printf '%s passed, %s fail as expected, %s fail unexpectedly\n' "$passed" "$expected" "$bad"
[ "$passed" -gt 0 ] && [ "$bad" -eq 0 ] && "$here/faults.sh" "$runner" "$folder/build" "$folder/faults"

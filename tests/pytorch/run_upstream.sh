#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_upstream.sh --torch-tests PATH [--venv DIRECTORY] [--devices N] [PYTEST OPTIONS]: PyTorch's own tests of
# symmetric memory on CPU tensors, from PATH, the user's checkout of PyTorch or its file
# test_symmetric_memory.py. The file is read as it is; nothing of it is kept. What each test does is compared
# with upstream/expected.tsv. Exit status: 0 if each did what is expected of it.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
here=$root/tests/pytorch venv=/tmp/torch-venv tests='' devices=4
while [ "$#" -gt 1 ]; do
    case $1 in
    --torch-tests) tests=$2 ;;
    --venv) venv=$2 ;;
    --devices) devices=$2 ;;
    *) break ;;
    esac
    shift 2
done
[ ! -d "$tests" ] || tests=$tests/test/distributed/test_symmetric_memory.py
if [ ! -f "$tests" ]; then
    say "usage: run_upstream.sh --torch-tests PATH [--venv DIRECTORY] [--devices N]: PATH is a checkout of PyTorch"
    exit 1
fi
if [ ! -x "$venv/bin/python" ]; then
    say "There is no environment in $venv; tests/pytorch/setup.sh makes one."
    exit 1
fi
"$venv/bin/python" -c 'import expecttest' 2>/dev/null ||
    "$venv/bin/python" -m pip install -q --disable-pip-version-check expecttest hypothesis pyyaml || exit 1
report=$(mktemp) || exit 1
trap 'rm -f -- "$report"' EXIT
unset PYTHONDONTWRITEBYTECODE # each of many processes would compile torch
export OMP_NUM_THREADS=1 PYTHONPYCACHEPREFIX=$venv/compiled # not among the sources
"$venv/bin/python" -m pytest -q -p no:cacheprovider -p symmem_torch.emulate --symmem-devices "$devices" \
    --junitxml "$report" -o junit_family=xunit1 "$tests" "$@"
"$venv/bin/python" "$here/upstream/compare.py" "$report" "$here/upstream/expected.tsv" "$tests"

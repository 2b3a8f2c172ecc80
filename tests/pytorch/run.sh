#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [--venv DIRECTORY] [PYTEST OPTIONS]: the tests of symmem_torch, by 2 and 4 ranks, in the environment
# that setup.sh made. The last line is "N passed, N failed, N skipped". Exit status: 0 if nothing failed.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
venv=/tmp/torch-venv
if [ "${1:-}" = --venv ] && [ "$#" -gt 1 ]; then
    venv=$2
    shift 2
fi
if [ ! -x "$venv/bin/python" ]; then
    say "There is no environment in $venv; tests/pytorch/setup.sh makes one."
    exit 1
fi
# Of the job that starts this the tests want nothing.
unset PYTHONDONTWRITEBYTECODE RANK WORLD_SIZE LOCAL_RANK "${!SYMMEM_BACKEND@}" "${!SYMMEM_STORE@}" "${!TORCH_SYMM@}"
export OMP_NUM_THREADS=1 PYTHONPYCACHEPREFIX=$venv/compiled # not among the sources
report=$(mktemp) || exit 1
trap 'rm -f -- "$report"' EXIT
"$venv/bin/python" -m pytest -q -p no:cacheprovider --junitxml "$report" --rootdir "$root/tests/pytorch" \
    -c "$root/tests/pytorch/pyproject.toml" "${@:-$root/tests/pytorch/tests}"
status=$?
count() { sed -n "s/.*<testsuite [^>]*$1=\"\([0-9]*\)\".*/\1/p" "$report" | head -n 1; }
bad=$(($(count failures) + $(count errors))) skipped=$(count skipped)
[ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
printf '%d passed, %d failed, %d skipped\n' "$(($(count tests) - $(count failures) - $(count errors) - skipped))" "$bad" "$skipped"
[ "$bad" -eq 0 ]

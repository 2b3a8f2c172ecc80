#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [--venv DIRECTORY] [--symmem DIRECTORY] [PYTEST OPTIONS]: the tests of symmem_torch, by 2 and by 4
# ranks, in the environment that setup.sh made. With --symmem the libraries of that build of symmem take the
# place of those in the package. The build may have a sanitizer (-DSYMMEM_SANITIZE=address,undefined or
# thread), whose reports count as failures. The last line is "N passed, N failed, N skipped".
# Exit status: 0 if nothing failed.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
venv=/tmp/torch-venv symmem=
while [ "$#" -gt 1 ]; do
    case $1 in
    --venv) venv=$2 ;;
    --symmem) symmem=$2 ;;
    *) break ;;
    esac
    shift 2
done
if [ ! -x "$venv/bin/python" ]; then
    say "There is no environment in $venv; tests/pytorch/setup.sh makes one."
    exit 1
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
start=() without=()

# A copy of the package beside the installed one, with other libraries. Python and torch have no sanitizer,
# so its runtime has to come before them, and what it says of their own code is left out.
use_symmem() { # DIRECTORY
    local library=$1/lib/libsymmem.so installed runtime options="log_path=$work/report"
    if [ ! -f "$library" ] || [ ! -f "$1/lib/libsymmem_backend_shm.so" ]; then
        say "$1 is no folder that symmem was built in, or its library and emulation are not built"
        exit 1
    fi
    installed=$(cd / && "$venv/bin/python" -c 'import symmem_torch; print(symmem_torch.__path__[0])') || exit 1
    mkdir "$work/package" && cp -r "$installed" "$work/package/symmem_torch" || exit 1
    cp -P "$1"/lib/libsymmem.so* "$1/lib/libsymmem_backend_shm.so" "$work/package/symmem_torch/lib/" || exit 1
    export PYTHONPATH=$work/package
    if nm -D "$library" | grep -q ' __asan_init'; then
        runtime=$(ldd "$library" | sed -n 's/.*libasan[^ ]* => \([^ ]*\) .*/\1/p')
        [ -n "$runtime" ] || runtime=$(clang -print-file-name="libclang_rt.asan-$(uname -m).so")
        # It looks for what throws exceptions when it starts, and Python has no C++.
        start=(env LD_PRELOAD="$runtime $(g++ -print-file-name=libstdc++.so.6)" ASAN_OPTIONS="$options:detect_leaks=0:alloc_dealloc_mismatch=0")
    elif nm -D "$library" | grep -q ' __tsan_init'; then
        runtime=$(ldd "$library" | sed -n 's/.*libtsan[^ ]* => \([^ ]*\) .*/\1/p')
        start=(env LD_PRELOAD="$runtime"
            TSAN_OPTIONS="$options:ignore_noninstrumented_modules=1:die_after_fork=0:exitcode=0")
        # ThreadSanitizer ends a fork of a process with threads that starts a thread of its own.
        without=(--deselect tests/test_bad_input.py::test_worker_of_a_data_loader)
    fi
}
[ -z "$symmem" ] || use_symmem "$symmem"

# Of the job that starts this the tests want nothing.
unset PYTHONDONTWRITEBYTECODE RANK WORLD_SIZE LOCAL_RANK "${!SYMMEM_BACKEND@}" "${!SYMMEM_STORE@}" "${!TORCH_SYMM@}"
export OMP_NUM_THREADS=1 PYTHONPYCACHEPREFIX=$venv/compiled # not among the sources
"${start[@]}" "$venv/bin/python" -m pytest -q -p no:cacheprovider --junitxml "$work/tests.xml" \
    --rootdir "$root/tests/pytorch" -c "$root/tests/pytorch/pyproject.toml" "${without[@]}" "${@:-$root/tests/pytorch/tests}"
status=$?
count() { sed -n "s/.*<testsuite [^>]*$1=\"\([0-9]*\)\".*/\1/p" "$work/tests.xml" | head -n 1; }
bad=$(($(count failures) + $(count errors))) skipped=$(count skipped)
passed=$(($(count tests) - bad - skipped))
[ "$status" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1
for report in "$work"/report*; do
    [ -s "$report" ] || continue
    head -n 60 "$report"
    bad=$((bad + 1))
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$bad" "$skipped"
[ "$bad" -eq 0 ]

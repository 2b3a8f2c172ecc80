#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_scripts.sh runs the scripts for users with programs of its own in place of cmake, nvidia-smi and the
# suite. It checks what the scripts report when no run took place, and what they leave behind when a signal
# ends them.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/report/checks.sh
. "$here/../../report/checks.sh"
unset RANK WORLD_SIZE CUDA_VISIBLE_DEVICES "${!SYMMEM_@}" "${!PMI@}" "${!OMPI_@}" "${!SLURM_@}"

# --- a tree with the scripts, and the programs --------------------------------------------------------
tree=$work/tree
mkdir -p "$tree/tests" "$tree/build/bin" "$work/bin" "$work/tmp"
cp "$here"/../../{lib,gpu,conformance}.sh "$tree/tests/" || exit 1
mkdir "$tree/core" && cp "$here/../../../core/symmem-run.sh" "$tree/core/" || exit 1
printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\n' "$tree" >"$tree/build/CMakeCache.txt"
program() { # FILE: its lines after the first, on standard input
    { printf '#!/usr/bin/env bash\n' && cat; } >"$1"
    chmod +x "$1"
}
program "$work/bin/cmake" <<<'exit 0'
program "$work/bin/nvcc" <<<'echo release 1'
program "$work/bin/nvidia-smi" <<<'echo "GPU 0: one"'
program "$tree/build/bin/symmem-conformance" <<'END'
printf '%s\n' "$*" >>"$RAN"
[ -z "${WAITS:-}" ] || { echo "$$" >"$WAITS" && exec sleep 50; }
[ "$1" != --backend ] || [ "$2" != cuda ] || [ "${9}" != --output ] || exec >"${10}"
case " $* " in
*' --list-profiles '*) printf 'core\t-\t1\n' ;;
*) echo '1 passed, 0 failed, 0 skipped' ;;
esac
END
export PATH=$work/bin:$PATH RAN=$work/ran SYMMEM_GPU_CHECK=0 TMPDIR=$work/tmp

is_gone() { # PID
    local left=50
    while kill -0 "$1" 2>/dev/null && [ "$left" -gt 0 ]; do
        left=$((left - 1))
        sleep 0.1
    done
    [ "$left" -gt 0 ] || fail "process $1 was left behind: $(tr '\0' ' ' <"/proc/$1/cmdline")"
    [ "$left" -gt 0 ] || kill "$1"
}
await_file() { # FILE
    local left=50
    while [ ! -s "$1" ] && [ "$left" -gt 0 ]; do
        left=$((left - 1))
        sleep 0.1
    done
    [ -s "$1" ] || fail "no ${1##*/}"
}

# --- gpu.sh -------------------------------------------------------------------------------------------
gpu_refuses() { # TEXT SETTINGS...
    local text=$1
    shift
    rm -f "$RAN"
    expect_status 4 env "$@" "$tree/tests/gpu.sh"
    has "$work/err" "$text"
    [ ! -e "$RAN" ] || fail "gpu.sh ran the suite with $*"
}
expect_status 0 "$tree/tests/gpu.sh"
is "runs" "$(wc -l <"$RAN")" 2
for parts in 0 -1 2x many '1 2'; do
    gpu_refuses "SYMMEM_GPU_PARTS is a number, not \"$parts\"" SYMMEM_GPU_PARTS="$parts"
done
gpu_refuses 'SYMMEM_GPU_MODES is thread or process or both, not " "' SYMMEM_GPU_MODES=' '
gpu_refuses 'SYMMEM_GPU_MODES is thread or process or both, not "thread procss"' \
    SYMMEM_GPU_MODES='thread procss'
# --- symmem-run -------------------------------------------------------------------------------------
expect_status 2 "$tree/core/symmem-run.sh" 2
has "$work/err" 'usage: symmem-run'
expect_status 2 "$tree/core/symmem-run.sh"
# shellcheck disable=SC2016 # for the ranks' shells
expect_status 1 "$tree/core/symmem-run.sh" 2 bash -c 'exit "$RANK"'
# A signal that ends the script ends its ranks.
# shellcheck disable=SC2016 # for the ranks' shells
"$tree/core/symmem-run.sh" 2 bash -c 'echo "$$" >"$0.$RANK"; exec sleep 50' "$work/rank" &
script=$!
await_file "$work/rank.0"
await_file "$work/rank.1"
kill "$script"
wait "$script" && fail "symmem-run that was ended succeeded"
is_gone "$(cat "$work/rank.0")"
is_gone "$(cat "$work/rank.1")"
is "the ranks' folder" "$(ls "$work/tmp")" ''

# --- conformance.sh -----------------------------------------------------------------------------------
expect_status 0 "$tree/tests/conformance.sh"
is "the last line" "$(tail -n 1 "$work/out")" '1 passed, 0 failed, 0 skipped'
expect_status 0 "$tree/tests/conformance.sh" --list-profiles
is "profiles" "$(cat "$work/out")" $'core\t-\t1'
WAITS=$work/runner "$tree/tests/conformance.sh" >"$work/out" 2>&1 &
script=$!
await_file "$work/runner"
kill "$script"
wait "$script" && fail "conformance.sh that was ended succeeded"
is_gone "$(cat "$work/runner")"

# --- a tree that is reached by a link is the same tree ------------------------------------------------
ln -s "$tree" "$work/link"
: >"$tree/build/result"
expect_status 0 "$work/link/tests/conformance.sh"
[ -e "$tree/build/result" ] || fail "what was in build/ is gone"
mv "$tree" "$work/moved"
expect_status 4 "$work/moved/tests/conformance.sh"
[ ! -e "$work/moved/build/result" ] || fail "what was built elsewhere is still there"
conclude

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: PyTorch on symmem. Sourced by tests/stages.sh.

stage_pytorch() {
    take_turn
    local venv=${TMPDIR:-/tmp}/torch-venv log=$logs/$stage.setup.log status
    timeout -k 15 1500 tests/pytorch/setup.sh --venv "$venv" >"$log" 2>&1 </dev/null
    status=$?
    if [ "$status" -eq 77 ]; then
        skip pytorch "no torch to be had: PyPI is out of reach, or has none for this Python"
        return
    fi
    if ! check "setup.sh" test "$status" -eq 0; then
        tail -n 20 "$log" | sed 's/^/    | /'
        return
    fi
    log=$logs/$stage.run.log
    timeout -k 15 "$run_limit" tests/pytorch/run.sh --venv "$venv" >"$log" 2>&1 </dev/null
    add_run "symmem_torch" "$log" $?
    if made gcc; then
        check "torchrun" tests/launchers/check.sh "$venv/bin/torchrun" "$root/build-gcc/bin/example" \
            "$root/build-gcc/bin/launcher-rounds"
        check "install" cmake --install build-gcc --prefix "$venv/symmem" &&
            check "the suite on PyTorch's allocators" timeout -k 15 1800 tests/plugins/pytorch/check.sh \
                "$venv/symmem" "$venv" "$venv/plugin"
    fi
    rm -rf -- "$venv"
}

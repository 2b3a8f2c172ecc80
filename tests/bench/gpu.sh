#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu.sh [RANKS [options of gpu_turns.py]]: symmem, PyTorch (its symmetric memory, and NCCL) and
# NVSHMEM, interleaved, on RANKS GPUs or on all. Builds what is needed first. A table with ratios on standard
# output; that, JSON and logs in build/gpu-bench/, or where SYMMEM_GPU_OUT says. About five minutes with 2
# GPUs; with `2 --peers nvshmem --ops barrier --rounds 3` one. What calls cost the host comes behind it
# (host.json). Needs a driver, nvcc, Python 3, its torch and nvidia-nvshmem; without them symmem alone is
# measured. With 2 ranks and torch also the fused products at three shapes (fused/), unless --ops chooses from
# the others. Exit status 1 if anything is missing from the comparison, 4 if there is no GPU or nothing was
# built.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root" || exit 4
find_gpus || exit 4
ranks=${1:-$gpus}
[ $# -eq 0 ] || shift
out=${SYMMEM_GPU_OUT:-build/gpu-bench}
never_multicast
nccl_on_one_host
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}

build_target="symmem-bench host-cost fused-shapes symmem_backend_cuda" build_in build || exit 4
mkdir -p "$out" && mv build/build.log "$out/build.log" || exit 4
about_gpus nvcc "$ranks" 2>&1 | tee "$out/about.txt"
python3 tests/bench/gpu_turns.py --bench build/bin/symmem-bench --ranks "$ranks" --out "$out" "$@"
status=$?
SYMMEM_BACKEND=cuda core/symmem-run.sh "$ranks" build/bin/host-cost | tee "$out/host.json"
[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
# Fused products, for which two ranks are what all sides have.
if [ "$ranks" -eq 2 ] && [[ " $* " != *" --ops"* ]] && python3 -c 'import torch' 2>/dev/null; then
    mkdir -p "$out/fused"
    python3 tests/bench/gpu_fused.py --bench build/bin/fused-shapes --out "$out/fused" || status=1
fi
exit "$status"

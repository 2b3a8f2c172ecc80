#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu.sh [RANKS [options of gpu_turns.py]]: symmem and PyTorch (its symmetric memory, and NCCL) by turns,
# on as many GPUs as there are ranks, which are all unless RANKS is given. Builds what is needed first.
# A table with ratios on standard output; that, JSON and logs in build/gpu-bench/, or where SYMMEM_GPU_OUT
# says. About three minutes with 2 GPUs. Needs a driver, nvcc, Python 3 and its torch; without torch symmem
# alone is measured. Exit status 1 if anything is missing from the comparison, 4 if there is no GPU or
# nothing was built.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root" || exit 4
find_gpus || exit 4
ranks=${1:-$gpus}
[ $# -eq 0 ] || shift
out=${SYMMEM_GPU_OUT:-build/gpu-bench}
# Never multicast: on shared hosts it can put GPUs out of service.
export SYMMEM_MULTICAST=0 NCCL_NVLS_ENABLE=0
export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}
# One host: no other network than its own, no service threads, and what NCCL warns of.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_RAS_ENABLE=0 NCCL_DEBUG=${NCCL_DEBUG:-WARN}

build_target="symmem-bench symmem_backend_cuda" build_in build || exit 4
mkdir -p "$out" && mv build/build.log "$out/build.log" || exit 4
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    nvcc --version | grep release
    printf 'ranks %s, commit %s\n' "$ranks" "$(git rev-parse HEAD 2>/dev/null || echo unknown)"
} >"$out/about.txt" 2>&1
cat "$out/about.txt"
exec python3 tests/bench/gpu_turns.py --bench build/bin/symmem-bench --ranks "$ranks" --out "$out" "$@"

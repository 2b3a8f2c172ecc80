#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu.sh [RANKS [runner options]]: builds, and runs the conformance suite on the CUDA backend, with
# ranks as threads and as processes. RANKS is the number of GPUs unless it is given; more ranks than
# GPUs share them. Needs a driver, nvcc and no network. The ranks' processes are kept from case to
# case, for opening a device takes seconds; SYMMEM_GPU_KEEP_RANKS=0 gives each case new ones. Results:
# build/gpu/*.json, *.txt and about.txt; the last lines are the summaries. Exit status: the worst of
# the runner's, 4 if nothing was built.
set -u
cd "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 4
results=build/gpu
ranks=${1:-$(nvidia-smi -L | wc -l)}
[ $# -eq 0 ] || shift
# Never multicast: on shared hosts it can put GPUs out of service.
export SYMMEM_MULTICAST=0 NCCL_NVLS_ENABLE=0
export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
# Streams of one process must not queue behind one another's waiting kernels.
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}

cmake -S . -B build -G Ninja >build.gpu.log 2>&1 &&
    cmake --build build --target symmem-conformance symmem_backend_cuda >>build.gpu.log 2>&1
built=$?
mkdir -p "$results" && mv build.gpu.log "$results/build.log"
if [ "$built" -ne 0 ]; then
    tail -n 30 "$results/build.log"
    exit 4
fi
{
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    nvcc --version | grep release
    printf 'ranks %s, commit %s\n' "$ranks" "$(git rev-parse HEAD 2>/dev/null || echo unknown)"
} >"$results/about.txt"
cat "$results/about.txt"

keep=(--keep-ranks)
[ "${SYMMEM_GPU_KEEP_RANKS:-1}" != 0 ] || keep=()

worst=0
for mode in thread process; do
    timeout "${SYMMEM_GPU_LIMIT_S:-3600}" build/bin/symmem-conformance --backend cuda \
        --ranks "$ranks" --rank-mode "$mode" "${keep[@]}" --no-color --format text \
        --output "$results/$mode.txt" --report "json=$results/$mode.json" "$@"
    status=$?
    printf '%s: exit status %s: %s\n' "$mode" "$status" \
        "$(tail -n 1 "$results/$mode.txt" 2>/dev/null || echo nothing was run)"
    [ "$status" -le "$worst" ] || worst=$status
done
exit "$worst"

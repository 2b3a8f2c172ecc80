#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# torch_allocators.sh [RANKS [ALLOCATOR...]] [-- OPTIONS]: the suite on the allocators of the torch that
# python3 has (or $PYTHON), by RANKS ranks (2), a GPU for each. The allocators are CUDA, NCCL and NVSHMEM
# unless others are named. Results: build/gpu-torch/*.json and *.txt, and findings.md, a table of requirements
# by allocators for tests/plugins/FINDINGS.md. OPTIONS go to the runner. Exit status: 4 without a GPU or
# torch, or if nothing was built. Otherwise 0, for what the allocators do is the result and no failure.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root" || exit 4
ranks=2
if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then
    ranks=$1
    shift
fi
allocators=()
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
    allocators+=("$1")
    shift
done
[ "$#" -eq 0 ] || shift
[ "${#allocators[@]}" -gt 0 ] || allocators=(CUDA NCCL NVSHMEM)
results=build/gpu-torch plugin=build/plugin-torch
find_gpus || exit 4
torch=$("${PYTHON:-python3}" -c 'import torch; print(torch.__path__[0])') || exit 4
never_multicast
nccl_on_one_host
# Groups begin with a communicator, which takes up to a second.
export SYMMEM_TIMEOUT_SCALE=${SYMMEM_TIMEOUT_SCALE:-3}

mkdir -p "$results" || exit 4
build_target=suite build_in build || exit 4
if ! { cmake -S tests/plugins/pytorch -B "$plugin" -DSYMMEM_TORCH="$torch" -DSYMMEM_TORCH_CUDA=ON &&
    cmake --build "$plugin" --parallel; } >"$results/build.log" 2>&1; then
    tail -n 20 "$results/build.log" >&2
    exit 4
fi
{
    about_gpus nvcc "$ranks"
    "${PYTHON:-python3}" -c 'import torch; print("torch", torch.__version__, "NCCL", torch.cuda.nccl.version())'
} | tee "$results/about.txt"

files=()
for allocator in "${allocators[@]}"; do
    rm -f "$results/$allocator".*
    # The engine starts once in a process, and a trap ends the device's context: so no ranks are kept.
    SYMMEM_TORCH_ALLOCATOR=$allocator timeout -k 15 "${SYMMEM_GPU_LIMIT_S:-3600}" build/bin/symmem-conformance \
        --backend "$plugin/libsymmem_backend_torch.so" --ranks "$ranks" --no-large --no-color --format text \
        --output "$results/$allocator.txt" --report "json=$results/$allocator.json" "$@"
    printf '%s: %s\n' "$allocator" "$(tail -n 1 "$results/$allocator.txt")"
    [ ! -s "$results/$allocator.json" ] || files+=("$results/$allocator.json")
done
[ "${#files[@]}" -eq 0 ] || tests/plugins/findings.sh "${files[@]}" | tee "$results/findings.md"

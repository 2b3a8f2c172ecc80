#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu.sh [RANKS [runner options]]: builds, and runs the conformance suite on the CUDA backend, with
# ranks as threads and as processes. RANKS is the number of GPUs unless it is given; more ranks than
# GPUs share them. Needs a driver, nvcc and no network. The ranks' processes are kept from case to
# case, for opening a device takes seconds; SYMMEM_GPU_KEEP_RANKS=0 gives each case new ones. Results:
# build/gpu/*.json, *.txt and about.txt; the last lines are the summaries. Exit status: the worst of
# the runner's, 4 if nothing was built. SYMMEM_GPU_MODES="thread process": which of them, in order.
# SYMMEM_GPU_BACKEND=nccl: the NCCL backend instead, results in build/gpu-nccl/; NCCL wants a GPU for
# each rank. NCCL_HOME: a folder with include/ and lib/ of the NCCL to use, where it is not the
# system's; see backend_nccl/README.md. symmem-cuda-check or symmem-nccl-check comes last;
# SYMMEM_GPU_CHECK=0: not.
# Under a launcher (mpirun -n N, srun, torchrun --no-python) its rank 0 does all that, with N ranks
# that the runner starts itself, since many cases end ranks and start new ones; the others do nothing.
set -u
cd "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 4
launched=${RANK:-${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}}}
world=${WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-${SLURM_NTASKS:-}}}}
if [ "$launched" -ne 0 ]; then
    printf 'rank %s of %s: nothing to do, rank 0 runs the suite\n' "$launched" "${world:-?}"
    exit 0
fi
unset RANK PMIX_RANK OMPI_COMM_WORLD_RANK PMI_RANK SLURM_PROCID
unset WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS LOCAL_RANK OMPI_COMM_WORLD_LOCAL_RANK
backend=${SYMMEM_GPU_BACKEND:-cuda}
options=()
results=build/gpu
[ "$backend" = cuda ] || results=build/gpu-$backend
gpus=$(nvidia-smi -L | wc -l)
ranks=${1:-${world:-$gpus}}
[ $# -eq 0 ] || shift
# Never multicast: on shared hosts it can put GPUs out of service.
export SYMMEM_MULTICAST=0 NCCL_NVLS_ENABLE=0
export TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
if [ "$backend" = nccl ]; then
    if [ "$ranks" -gt "$gpus" ]; then
        printf 'NCCL refuses several ranks on a GPU: %s ranks, %s GPUs\n' "$ranks" "$gpus"
        exit 4
    fi
    # One host: no other network than its own, no service threads, and what NCCL warns of.
    export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_RAS_ENABLE=0
    export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
    # A communicator takes half a second, where the cases expect milliseconds.
    export SYMMEM_TIMEOUT_SCALE=${SYMMEM_TIMEOUT_SCALE:-3}
    if [ -f "${NCCL_HOME:-}/include/nccl_device.h" ]; then
        options=("-DNCCL_INCLUDE_DIR=$NCCL_HOME/include")
    fi
    if [ -z "${SYMMEM_NCCL_LIBRARY:-}" ] && [ -f "${NCCL_HOME:-}/lib/libnccl.so.2" ]; then
        export SYMMEM_NCCL_LIBRARY=$NCCL_HOME/lib/libnccl.so.2
    fi
fi

cmake -S . -B build -G Ninja "${options[@]}" >build.gpu.log 2>&1 &&
    cmake --build build --target suite "symmem_backend_$backend" >>build.gpu.log 2>&1
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
    [ "$backend" != nccl ] || printf 'libnccl: %s\n' "${SYMMEM_NCCL_LIBRARY:-of the system}"
} >"$results/about.txt"
cat "$results/about.txt"

keep=(--keep-ranks)
[ "${SYMMEM_GPU_KEEP_RANKS:-1}" != 0 ] || keep=()

worst=0
for mode in ${SYMMEM_GPU_MODES:-thread process}; do
    # Streams of ranks that are threads must not queue behind one another's waiting kernels. With 32
    # connections a context takes a second to open, with the driver's 8 a quarter of that.
    own=()
    [ "$mode" != thread ] || own=(CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-32}")
    env "${own[@]}" timeout "${SYMMEM_GPU_LIMIT_S:-3600}" \
        build/bin/symmem-conformance --backend "$backend" \
        --ranks "$ranks" --rank-mode "$mode" "${keep[@]}" --no-color --format text \
        --output "$results/$mode.txt" --report "json=$results/$mode.json" "$@"
    status=$?
    printf '%s: exit status %s: %s\n' "$mode" "$status" \
        "$(tail -n 1 "$results/$mode.txt" 2>/dev/null || echo nothing was run)"
    [ "$status" -le "$worst" ] || worst=$status
done

# What the suite cannot know.
run_check() { # NAME PROGRAM...
    local name=$1 status
    shift
    timeout 300 tests/run_ranks.sh "$ranks" "$@" >"$results/check-$name.txt" 2>&1
    status=$?
    printf 'check %s: exit status %s, %s good, %s bad\n' "$name" "$status" \
        "$(grep -c '^rank [0-9]*: good' "$results/check-$name.txt")" \
        "$(grep -c '^rank [0-9]*: BAD' "$results/check-$name.txt")"
    grep '^rank [0-9]*: BAD' "$results/check-$name.txt"
    [ "$status" -le "$worst" ] || worst=$status
}
if [ "${SYMMEM_GPU_CHECK:-1}" != 0 ]; then
    if ! cmake --build build --target "symmem-$backend-check" >>"$results/build.log" 2>&1; then
        printf 'check: not built, see %s\n' "$results/build.log"
    elif [ "$backend" = nccl ]; then
        run_check within build/bin/symmem-nccl-check
        # The same ranks, each on what NCCL takes for a host of its own.
        # shellcheck disable=SC2016 # for the ranks' shells
        run_check apart bash -c 'NCCL_HOSTID=host$RANK exec build/bin/symmem-nccl-check'
    else
        run_check cuda build/bin/symmem-cuda-check
    fi
fi
exit "$worst"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu.sh [RANKS [runner options]]: builds, and runs the conformance suite on a GPU backend, with ranks as
# threads and as processes, then the programs for what the suite cannot know. core/doc/gpu.md says
# what it needs, core/doc/environment.md which variables it heeds. RANKS is the number of GPUs unless it is
# given, or a launcher's number of ranks; more ranks than GPUs share them. Results: build/gpu/*.json, *.txt
# and about.txt (build/gpu-nccl/); MODE.K.* are of part K. The last lines are the summaries. Exit status: the
# worst of the runner's, 4 if there is no GPU, RANKS or a setting is not what it should be, or nothing was
# built; a check that finds nothing good counts as 1.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 4
find_job
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
find_gpus || exit 4
ranks=${1:-${world:-$gpus}}
if [ $# -gt 0 ]; then
    origin="as it was asked for"
else
    origin=${world:+as the launcher has it}
fi
[ $# -eq 0 ] || shift
if ! [[ $ranks =~ ^[1-9][0-9]*$ ]]; then
    printf 'gpu.sh: RANKS comes first and is a number, not "%s"\n' "$ranks" >&2
    exit 4
fi
modes=${SYMMEM_GPU_MODES:-thread process}
read -ra words <<<"$modes"
if ! [[ ${words[*]} =~ ^(thread|process)(\ (thread|process))*$ ]]; then
    printf 'gpu.sh: SYMMEM_GPU_MODES is thread or process or both, not "%s"\n' "$modes" >&2
    exit 4
fi
parts=${SYMMEM_GPU_PARTS:-1}
if ! [[ $parts =~ ^[1-9][0-9]*$ ]]; then
    printf 'gpu.sh: SYMMEM_GPU_PARTS is a number, not "%s"\n' "$parts" >&2
    exit 4
fi
never_multicast
if [ "$backend" = nccl ]; then
    if [ "$ranks" -gt "$gpus" ] && ! [[ ${NCCL_MULTI_RANK_GPU_ENABLE:-} =~ ^[1-9][0-9]*$ ]]; then
        printf 'NCCL takes several ranks on a GPU from 2.30 on, and only with %s: %s ranks, %s GPUs\n' \
            NCCL_MULTI_RANK_GPU_ENABLE=1 "$ranks" "$gpus"
        exit 4
    fi
    nccl_on_one_host
    # A communicator takes half a second, where the cases expect milliseconds.
    export SYMMEM_TIMEOUT_SCALE=${SYMMEM_TIMEOUT_SCALE:-3}
    if [ -f "${NCCL_HOME:-}/include/nccl_device.h" ]; then
        options=("-DNCCL_INCLUDE_DIR=$NCCL_HOME/include")
    fi
    if [ -z "${SYMMEM_NCCL_LIBRARY:-}" ] && [ -f "${NCCL_HOME:-}/lib/libnccl.so.2" ]; then
        export SYMMEM_NCCL_LIBRARY=$NCCL_HOME/lib/libnccl.so.2
    fi
fi

build_target="suite symmem_backend_$backend" build_in build "${options[@]}" || exit 4
mkdir -p "$results" && mv build/build.log "$results/build.log" || exit 4
{
    about_gpus nvcc "$ranks (${origin:-one for each GPU})"
    [ "$backend" != nccl ] || printf 'libnccl: %s\n' "${SYMMEM_NCCL_LIBRARY:-of the system}"
} | tee "$results/about.txt"

keep=(--keep-ranks)
[ "${SYMMEM_GPU_KEEP_RANKS:-1}" != 0 ] || keep=()

seed=$((RANDOM << 15 | RANDOM)) # the parts of a run have one
merger=
if [ "$parts" -gt 1 ] && cmake --build build --target symmem-report >>"$results/build.log" 2>&1; then
    merger=build/bin/symmem-report
fi

worst=0
pids=()
note() { # STATUS
    [ "$1" -le "$worst" ] || worst=$1
}
# What runs in the background gets no Ctrl-C.
# shellcheck disable=SC2317 # called by trap
stop() {
    local running # those that ended meanwhile have numbers that may be others' by now
    mapfile -t running < <(jobs -pr)
    [ "${#running[@]}" -eq 0 ] || kill "${running[@]}" 2>/dev/null
    wait
    exit 1
}
trap stop INT TERM

# One runner, in place of this shell.
run_part() { # MODE NAME RUNNER_OPTIONS...
    local mode=$1 name=$2 own=()
    shift 2
    # Streams of ranks that are threads and share a device must not queue behind one another's waiting
    # kernels. With 32 connections a context takes a second to open, with the driver's 8 a quarter of
    # that, and a process with eight devices has eight.
    if [ "$mode" = thread ] && [ "$ranks" -gt "$gpus" ]; then
        own=(CUDA_DEVICE_MAX_CONNECTIONS="${CUDA_DEVICE_MAX_CONNECTIONS:-32}")
    fi
    exec env "${own[@]}" timeout "${SYMMEM_GPU_LIMIT_S:-3600}" \
        build/bin/symmem-conformance --backend "$backend" \
        --ranks "$ranks" --rank-mode "$mode" "${keep[@]}" --no-color --format text \
        --output "$results/$name.txt" --report "json=$results/$name.json" "$@"
}

# Of the parts' results one; what they came to is then the text.
merge_parts() { # MODE
    local files=() part
    for ((part = 1; part <= parts; part++)); do
        files+=("$results/$1.$part.json")
    done
    if [ -n "$merger" ]; then
        "$merger" --merge "$results/$1.json" "${files[@]}" >"$results/$1.txt"
    else
        printf 'without symmem-report (libcjson) the parts stay apart, till symmem-report --merge %s\n' \
            "$results/$1.json ${files[*]}" >"$results/$1.txt"
    fi
}

# Its exit status is the worst of its parts'.
run_mode() { # MODE RUNNER_OPTIONS...
    local mode=$1 part pid worst=0 pids=()
    shift
    trap stop INT TERM # in a shell of its own if the modes run at once
    rm -f "$results/$mode".{txt,json} "$results/$mode".[0-9]*.{txt,json}
    if [ "$parts" -eq 1 ]; then
        run_part "$mode" "$mode" "$@" &
        pids+=($!)
    else
        for ((part = 1; part <= parts; part++)); do
            run_part "$mode" "$mode.$part" --part "$part/$parts" --seed "$seed" "$@" &
            pids+=($!)
        done
    fi
    for pid in "${pids[@]}"; do
        wait "$pid"
        note $?
    done
    if [ "$parts" -gt 1 ]; then
        merge_parts "$mode"
        note $?
    fi
    printf '%s: exit status %s: %s\n' "$mode" "$worst" \
        "$(tail -n 1 "$results/$mode.txt" 2>/dev/null || echo nothing was run)"
    return "$worst"
}

for mode in "${words[@]}"; do
    if [ "${SYMMEM_GPU_MODES_AT_ONCE:-0}" = 1 ]; then
        run_mode "$mode" "$@" &
        pids+=($!)
    else
        run_mode "$mode" "$@"
        note $?
    fi
done
for pid in "${pids[@]}"; do
    wait "$pid"
    note $?
done
pids=()

# What the suite cannot know.
run_check() { # NAME PROGRAM...
    local name=$1 status good
    shift
    timeout 300 core/symmem-run.sh "$ranks" "$@" >"$results/check-$name.txt" 2>&1
    status=$?
    good=$(grep -c '^rank [0-9]*: good' "$results/check-$name.txt")
    # A check that found nothing to check shows nothing.
    [ "$status" -ne 0 ] || [ "$good" -gt 0 ] || status=1
    printf 'check %s: exit status %s, %s good, %s bad, %s skipped\n' "$name" "$status" "$good" \
        "$(grep -c '^rank [0-9]*: BAD' "$results/check-$name.txt")" \
        "$(grep -c '^rank [0-9]*: SKIPPED' "$results/check-$name.txt")"
    grep '^rank [0-9]*: \(BAD\|SKIPPED\)' "$results/check-$name.txt"
    [ "$status" -le "$worst" ] || worst=$status
}
is_built() { # TARGET
    # "TARGET: phony" by ninja, "... TARGET" by make.
    if ! cmake --build build --target help 2>/dev/null |
        grep -E "^(\.\.\. )?$1(:|\$)" >/dev/null; then
        printf 'check %s: its headers or tools are not here\n' "$1"
        return 1
    fi
    cmake --build build --target "$1" >>"$results/build.log" 2>&1 && return
    printf 'check %s: not built, see %s\n' "$1" "$results/build.log"
    note 4
    return 1
}
if [ "${SYMMEM_GPU_CHECK:-1}" != 0 ]; then
    if is_built symmem-cuda-caller; then
        run_check caller env SYMMEM_BACKEND="$backend" build/bin/symmem-cuda-caller
        run_check exit env SYMMEM_BACKEND="$backend" build/bin/symmem-cuda-caller exit
    fi
    if ! is_built "symmem-$backend-check"; then
        :
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

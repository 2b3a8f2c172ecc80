#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [options]: symmem, Open MPI and MPICH interleaved in one run, and what the machine can do at best;
# a table with ratios on standard output, all of it as JSON in the folder --out.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"

usage() {
    cat <<'END'
usage: tests/bench/run.sh [options]
  --ranks N        default 2
  --rounds N       default 7, at most 64
  --ops LIST       default: every op that MPI has, too
  --bytes LIST     default 8,1K,8K,64K,512K,4M,32M
  --seconds S      of measuring each op and size in each round, default 0.1
  --input KIND     reused (default), rewritten, or both; see symmem-bench --help
  --bars           instead: what the project's wanted ratios are about, 2 ranks, and 8, on 2 processors;
                   with --pin, or the scheduler's choice of processors decides the result
  --cores N        keep all programs to the first N processors allowed; default all, with --bars 2
  --pin            in each program rank r stays on the r-th processor, round about
  --backend B      default shm
  --build DIR      default build
  --out DIR        default BUILD/bench/results
END
}

ranks=2 rounds=7 ops="" bytes=8,1K,8K,64K,512K,4M,32M seconds=0.1 inputs=reused bars=0 cores="" pin=()
backend=shm build=build out=""
while [ "$#" -gt 0 ]; do
    option=$1
    case $option in
    --bars) bars=1 ;;
    --pin) pin=(--pin) ;;
    --help)
        usage
        exit 0
        ;;
    --ranks | --rounds | --ops | --bytes | --seconds | --input | --cores | --backend | --build | --out)
        if [ "$#" -lt 2 ]; then
            usage >&2
            exit 2
        fi
        [ "$option" != --input ] || option=--inputs
        printf -v "${option#--}" %s "$2"
        shift
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done
[ "$inputs" != both ] || inputs="reused rewritten"
if ! [[ $ranks =~ ^[1-9][0-9]*$ && $rounds =~ ^[1-9][0-9]*$ && ${cores:-1} =~ ^[1-9][0-9]*$ ]] ||
    [ "$rounds" -gt 64 ]; then
    usage >&2
    exit 2
fi

cd "$root" || exit 1
need_build_tools
need_command python3 python3
install_missing || exit 1
build_target=bench-programs
build_in "$build" || exit 1
[ -n "$out" ] || out=$build/bench/results
mkdir -p -- "$out" || exit 1
cmake --build "$build" --target bench-mpi >"$out/mpi-build.log" 2>&1 ||
    say "MPI's programs cannot be built, see $out/mpi-build.log"
log=$out/errors.log lines=$out/lines.json
: >"$log"
: >"$lines"

# --- who takes part -------------------------------------------------------------------------------

launcher() { # NAME: how to start its ranks
    have_command "mpirun.$1" && echo "mpirun.$1" || echo mpirun
}

mpis=() missing=()
for mpi in openmpi mpich; do
    if [ -x "$build/bench/mpi-bench-$mpi" ] && have_command "$(launcher "$mpi")"; then
        mpis+=("$mpi")
    else
        missing+=("$mpi")
    fi
done
if [ "${#missing[@]}" -gt 0 ]; then
    say "not found, so not compared with: ${missing[*]} (Debian, Ubuntu: libopenmpi-dev openmpi-bin," \
        "libmpich-dev mpich)"
fi

# The first $cores of the processors that this shell may run on.
bound=()
if [ "$bars" -eq 1 ]; then
    cores=${cores:-2} pin=(--pin)
fi
if [ -n "$cores" ]; then
    allowed=$(taskset -cp $$ | sed 's/.*: //')
    list=$(for part in ${allowed//,/ }; do seq "${part%-*}" "${part#*-}"; done | head -n "$cores")
    bound=(taskset -c "$(paste -sd, <<<"$list")")
fi

# --- one measurement ------------------------------------------------------------------------------

round=0 failures=0
take() { # COMMAND...: appends its lines, each with the number of the round
    if ! timeout -k 5 300 "${bound[@]}" "$@" --json --seconds "$seconds" "${pin[@]}" \
        2>>"$log" </dev/null | sed "s/^{/{\"round\":$round,/" >>"$lines"; then
        printf 'failed: %s\n' "$*" >>"$log"
        failures=$((failures + 1))
    fi
}

ours() { # RANKS ARGUMENTS...
    take "$build/bin/symmem-bench" --backend "$backend" --ranks "$@"
}

openmpi() { # RANKS ARGUMENTS...
    local count=$1
    shift
    take "$(launcher openmpi)" --allow-run-as-root --oversubscribe --bind-to none -n "$count" \
        "$build/bench/mpi-bench-openmpi" "$@"
}

mpich() { # RANKS ARGUMENTS...
    local count=$1
    shift
    take "$(launcher mpich)" -bind-to none -n "$count" "$build/bench/mpi-bench-mpich" "$@"
}

has_op() { # LIST OP
    [[ " ${1//,/ } " == *" $2 "* ]]
}

our_ops=$("$build/bin/symmem-bench" --list --op all | paste -sd' ') || exit 1
mpi_ops=""
[ "${#mpis[@]}" -eq 0 ] || mpi_ops=$("$build/bench/mpi-bench-${mpis[0]}" --list | paste -sd' ')

# Each program runs one op.
measure() { # RANKS OP BYTES
    local input mpi
    for input in $inputs; do
        ours "$1" --op "$2" --bytes "$3" --input "$input"
        has_op "$mpi_ops" "$2" || continue
        for mpi in "${mpis[@]}"; do
            "$mpi" "$1" --op "$2" --bytes "$3" --input "$input"
        done
    done
}

limits() { # RANKS BYTES
    take "$build/bin/bench-limits" --ranks "$1" --op all --bytes "$2"
}

# --- the rounds -----------------------------------------------------------------------------------

one_round() {
    local op
    limits "$ranks" "$bytes"
    for op in $our_ops; do
        if [ -n "$ops" ]; then
            has_op "$ops" "$op" || continue
        elif [ "${#mpis[@]}" -gt 0 ]; then
            has_op "$mpi_ops" "$op" || continue
        fi
        measure "$ranks" "$op" "$bytes"
    done
}

one_round_of_bars() {
    local op sizes=1K,8K,64K,512K,4M,32M
    limits 2 "$sizes"
    measure 2 barrier 0
    for op in all_reduce_in_place all_reduce all_reduce_copy_out; do
        ! has_op "$our_ops" "$op" || measure 2 "$op" "$sizes"
    done
    measure 8 barrier 0
    for op in all_reduce_in_place all_reduce; do
        ! has_op "$our_ops" "$op" || measure 8 "$op" 8K
    done
}

compare=(python3 tests/bench/compare.py --json "$out/results.json")
for ((round = 0; round < rounds; round++)); do
    say "round $((round + 1)) of $rounds"
    if [ "$bars" -eq 1 ]; then
        one_round_of_bars
    else
        one_round
    fi
done
[ "$bars" -eq 0 ] || compare+=(--bars)
"${compare[@]}" <"$lines" || exit 1
printf '\n%s\n' "lines and JSON: $out/"
if [ "$failures" -gt 0 ]; then
    say "$failures measurements failed, see $log"
    exit 1
fi

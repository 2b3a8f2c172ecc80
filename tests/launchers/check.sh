#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check.sh LAUNCHER EXAMPLE ROUNDS: README's program and rounds.c with four ranks, started by mpirun, srun or
# torchrun (or the path of one), without a store option. The ranks find each other through what the launcher
# offers. For srun a Slurm of one host is made, if this user may. Exit status 77: the launcher is missing.
set -u
if [ $# -ne 3 ] || [ ! -x "$2" ] || [ ! -x "$3" ]; then
    echo "usage: check.sh LAUNCHER EXAMPLE ROUNDS" >&2
    exit 2
fi
launcher=$1 example=$2 rounds=$3
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT "${!SYMMEM_@}" "${!PMIX_@}" "${!SLURM_@}" "${!TORCHELASTIC_@}"
work=$(mktemp -d "${TMPDIR:-/tmp}/symmem-launch.XXXXXX") || exit 1
daemons=()

# shellcheck disable=SC2317 # called by trap
finish() {
    local pid
    for pid in "${daemons[@]}"; do
        kill "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    rm -rf -- "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

absent() {
    echo "skipped: $*"
    exit 77
}

daemon() { # COMMAND...
    "$@" >>"$work/daemons.log" 2>&1 &
    daemons+=("$!")
}

until_true() { # SECONDS COMMAND...
    local left=$(($1 * 10))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$((left -= 1))" -gt 0 ] || return 1
        sleep 0.1
    done
}

# A controller and a node on this host, on free ports, with a key of their own.
start_slurm() {
    local host command port=$((20000 + RANDOM % 10000))
    for command in munged slurmctld slurmd srun sinfo; do
        command -v "$command" >/dev/null || absent "no $command (Debian, Ubuntu: munge slurmctld slurmd slurm-client)"
    done
    [ "$(id -u)" = 0 ] || absent "a Slurm of one host is made as root only"
    [[ "$(srun --mpi=list 2>&1)" != *"pmix"* ]] && [ -z "$(find /usr/lib -name 'mpi_pmix*' 2>/dev/null)" ] &&
        absent "this Slurm has no PMIx"
    host=$(hostname -s)
    mkdir "$work/spool" "$work/state" "$work/munge" && chmod 755 "$work" && chmod 711 "$work/munge" || return 1
    head -c 128 /dev/urandom >"$work/munge/key" && chmod 600 "$work/munge/key" || return 1
    daemon munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
        --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" --log-file="$work/munge/log"
    cat >"$work/slurm.conf" <<END
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmdSpoolDir=$work/spool
TmpFS=$work
StateSaveLocation=$work/state
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
END
    export SLURM_CONF=$work/slurm.conf
    until_true 10 test -S "$work/munge/socket" || return 1
    daemon slurmctld -D
    daemon slurmd -D
    until_true 30 node_is_idle
}

node_is_idle() {
    [ "$(sinfo -h -o %t)" = idle ]
}

launch() { # PROGRAM
    case ${launcher##*/} in
    mpirun*)
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 60 "$launcher" --oversubscribe \
            -n 4 "$1"
        ;;
    srun*) timeout -k 5 60 "$launcher" --mpi=pmix -n 4 "$1" ;;
    torchrun*) timeout -k 5 120 "$launcher" --no-python --nproc-per-node 4 "$1" ;;
    *)
        echo "check.sh: $launcher is none of mpirun, srun and torchrun"
        return 1
        ;;
    esac
}

command -v "$launcher" >/dev/null || absent "no $launcher here"
case ${launcher##*/} in
srun*) start_slurm || {
    cat "$work/daemons.log"
    echo "no Slurm could be started"
    exit 1
} ;;
mpirun*) [[ "$("$launcher" --version 2>&1)" == *"Open MPI"* ]] || absent "$launcher is not Open MPI's" ;;
esac
export SYMMEM_BACKEND=shm
launch_and_compare() { # PROGRAM, with work/expected
    launch "$1" >"$work/out" 2>"$work/err"
    local status=$?
    if [ "$status" -ne 0 ] || ! grep '^rank ' "$work/out" | sort | cmp -s - "$work/expected"; then
        echo "FAILED: $1 by $launcher, exit status $status"
        cat "$work/out" "$work/err"
        tail -n 20 "$work/daemons.log" 2>/dev/null
        exit 1
    fi
}

for rank in 0 1 2 3; do
    left=$(((rank + 3) % 4))
    echo "rank $rank holds $((41 + left)), written by rank $left"
done >"$work/expected"
launch_and_compare "$example"
printf 'rank %d left nothing\n' 0 1 2 3 >"$work/expected"
launch_and_compare "$rounds"
echo "ok: four ranks by $launcher, without a folder"

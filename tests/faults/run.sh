#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [BUILD] walk|kills [OPTIONS]: whole jobs in which a call fails, or whose ranks are killed, contained
# as mutants are. The options are those of walk.c and kills.c; --limit SECONDS, first, for the whole run. The
# exit status is theirs, or 77 where nothing can be contained.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/mutants/namespace.sh
. "$here/../mutants/namespace.sh"
build=$here/../../build
case ${1:-} in walk | kills) ;; *) build=${1:-$build} && shift ;; esac
build=$(cd -- "$build" && pwd) || exit 1
what=${1:-}
case $what in
walk) job=job folder=/dev/shm/faults lane=50 ;;
kills) job=rounds folder=/dev/shm/kills lane=51 ;;
*)
    echo "usage: run.sh [BUILD] walk|kills [OPTIONS]" >&2
    exit 2
    ;;
esac
shift
limit=600
if [ "${1:-}" = --limit ]; then
    limit=$2
    shift 2
fi
if ! reason=$(containment_works "$build"); then
    echo "cannot be contained: $reason" >&2
    exit 77
fi
export PROCESSES=700
# In a folder apart from other files of /dev/shm, which must be empty at the end except for this one.
# shellcheck disable=SC2016
contained "$limit" use "$build" "$lane" bash -c 'what=$1 job=$2 folder=$3
    shift 3
    # The tree may have been built in a folder that is not to be seen from here.
    export LD_LIBRARY_PATH=$PWD/lib:$PWD/lib/faults
    mkdir -m 700 "$folder" || exit 2
    "bin/faults_$what" "$PWD/bin/faults_$job" "$folder" "$@"
    status=$?
    left=$(find /dev/shm /tmp -mindepth 1 ! -path "$folder" ! -path "$folder/*" | head -n 5)
    [ -z "$left" ] || { echo "left outside: $left" && exit 1; }
    exit "$status"' bash "$what" "$job" "$folder" "$@"

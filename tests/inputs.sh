#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# inputs.sh BUILD [INPUT...]: programs of users that failed once, each of which has to do now what it should.
# What it runs is installed from BUILD, and built as a user does it. The last line counts them.
set -u
tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
root=${tests%/*}
build=$(cd -- "${1:?a build folder}" && pwd) || exit 1
shift
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK "${!SYMMEM_@}"
export SYMMEM_TIMEOUT_SCALE=4
ulimit -n "$(ulimit -Hn)"

program() { timeout -k 5 120 env -C "$work" LD_LIBRARY_PATH="$work/prefix/lib" "$@"; }
ranks() { program "$root/core/symmem-run.sh" "$@"; }

# --- the inputs: 77 is "not possible here" ----------------------------------------------------------

input_relative_start() { LD_LIBRARY_PATH=prefix/lib timeout 60 env -C "$work" ./inputs start; }

input_interrupted() {
    program ./inputs interrupted || return 1
    # As on kernels that give all pages of an interrupted call back.
    cc -shared -fPIC -O1 -D_GNU_SOURCE -x c - -o "$work/old.so" <<'C' || return 1
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
int posix_fallocate(int fd, off_t at, off_t bytes) {
    sigset_t all, old, now;
    int error = 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &old);
    for (off_t done = 0; done < bytes && !error; done += 1 << 20) {
        error = fallocate(fd, 0, at + done, bytes - done < 1 << 20 ? bytes - done : 1 << 20) ? errno : 0;
        sigpending(&now);
        if (!error && bytes - done > 1 << 20 && sigismember(&now, SIGALRM))
            error = EINTR;
    }
    sigprocmask(SIG_SETMASK, &old, 0);
    return error;
}
C
    program env LD_PRELOAD="$work/old.so" ./inputs interrupted
}

input_big() { program ./inputs big; }
input_wrap() { program ./inputs wrap; }
input_many() { ranks 2 ./inputs many && program ./kept; }
input_shorten() { ranks 3 ./inputs shorten; }

# A folder in which another user can put, shorten or lock files is refused as a store.
input_open_store() {
    local said
    mkdir "$work/open" && chmod 0777 "$work/open" || return 1
    said=$(program env RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 SYMMEM_STORE="file:$work/open" ./inputs start 2>&1) && return 1
    echo "$said"
    grep -q 'others than its owner have rights to .*/open: mode 0777, not 0755' <<<"$said" &&
        [ -z "$(ls -A "$work/open")" ]
}

# A table that AT does not name belongs to no rank. Writing the one that it names gives CORRUPT on at least
# one rank.
input_split_tables() {
    local checking number said
    for checking in 0 1; do
        for number in 0 1; do
            said=$(ranks 2 ./inputs split_tables "$checking" "$number") || return 1
            echo "$said"
            grep -qE ': (CORRUPT|MISMATCH)$' <<<"$said" || return 1
        done
    done
}

# In namespaces: without the right to make them, as root of a user namespace.
own_root=()
unshare -m true 2>/dev/null || own_root=(-Ur)
can_be_apart() { unshare "${own_root[@]}" -mpf true; }

# apart N RANKS COMMAND... -- ARGUMENTS: a job of N ranks, of which those in the list, between commas, are
# started by COMMAND.
apart() {
    local count=$1 list=$2 command=()
    shift 2
    while [ "$1" != -- ]; do
        command+=("$1")
        shift
    done
    shift
    # shellcheck disable=SC2016 # for the ranks' shells
    ranks "$count" bash -c 'list=,$1, count=$2; shift 2; command=("${@:1:count}"); shift "$count"
        [[ $list != *,$RANK,* ]] || exec "${command[@]}" "$@"
        exec "$@"' bash "$list" "${#command[@]}" "${command[@]}" ./inputs "$@"
}
own() { unshare_own=(unshare "${own_root[@]}" "$@"); }
# shellcheck disable=SC2016 # for the ranks' shells
with_boot_id='mount --make-rprivate / && mount --bind "$FILES$RANK" /proc/sys/kernel/random/boot_id && exec "$@"'

# The death of a rank in a pid namespace of its own is seen, with a limit and without one, and by it those of
# others.
input_pid_namespace() {
    can_be_apart || return 77
    own -pf
    local limit
    for limit in 6000 0; do
        apart 3 1 "${unshare_own[@]}" -- leave "$limit" && apart 3 0 "${unshare_own[@]}" -- leave "$limit" || return 1
    done
    # The same where the boot id cannot be read.
    own -mpf
    FILES=/dev/null apart 3 1 "${unshare_own[@]}" bash -c "${with_boot_id/\$RANK/}" bash -- leave 6000
}

# Containers with a boot id of their own each are one host.
input_boot_ids() {
    can_be_apart || return 77
    local number
    for number in 0 1 2; do cat /proc/sys/kernel/random/uuid >"$work/boot$number"; done
    own -m
    FILES=$work/boot apart 3 0,1,2 "${unshare_own[@]}" bash -c "$with_boot_id" bash -- meet &&
        FILES=$work/boot apart 3 1,2 "${unshare_own[@]}" bash -c "$with_boot_id" bash -- leave 0
}

# Whatever a rank sees of the system, its death is seen, and a job of such ranks works. Or they are told why
# not.
input_views() {
    can_be_apart || return 77
    local view said
    # shellcheck disable=SC2016 # for the ranks' shells
    for view in "" "-U" "-i" "-pf" "-pf --mount-proc" "-T" "-mu" '-m bash -c "umount -l /proc; exec \"\$@\"" bash' \
        '-mpf --mount-proc bash -c "mount -o remount,hidepid=2 /proc; exec \"\$@\"" bash'; do
        eval "own $view"
        [ -n "$view" ] || unshare_own=(env)
        apart 2 1 "${unshare_own[@]}" -- meet && apart 2 1 "${unshare_own[@]}" -- leave 0 || return 1
    done
    own -n
    said=$(apart 2 1 "${unshare_own[@]}" -- meet 2>&1) && return 1
    echo "$said"
    grep -q 'rank 1 in another network namespace' <<<"$said"
}

# --- limits from outside ----------------------------------------------------------------------------

# A shell's limits, each with the name that records have to give it: errors, and no signals.
limited() { # ULIMIT_OPTION VALUE NAME BYTES
    local said
    said=$(ulimit -S "-$1" "$2" && ranks 2 ./inputs limited "$3" "$4" 2>&1) || {
        echo "ulimit -$1 $2: $said"
        return 1
    }
    echo "ulimit -$1 $2: $said"
}

input_limits() {
    local number
    limited f 0 RLIMIT_FSIZE 4096 && limited f 40 RLIMIT_FSIZE 4096 && limited f 1000 RLIMIT_FSIZE 4000000 &&
        limited v 60000 RLIMIT_AS 200000000 && limited d 2000 RLIMIT_DATA 4096 && limited l 0 RLIMIT_MEMLOCK 4096 &&
        limited s 64 RLIMIT_STACK 4096 && limited s unlimited RLIMIT_STACK 4096 || return 1
    for number in {8..30..2}; do
        limited n "$number" RLIMIT_NOFILE 4096 || return 1
    done
}

# The folder of this shell's group, under which a new one may be made for a resource; 1: there is none.
own_group() { # CONTROLLER LIMIT_FILE...
    local controller=$1 folder name
    shift
    folder=/sys/fs/cgroup/$controller$(sed -n "s/^[0-9]*:$controller://p" /proc/self/cgroup)
    [ -e "$folder/cgroup.procs" ] && [ "$folder" != "/sys/fs/cgroup/$controller" ] ||
        folder=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    mkdir "$folder/symmem-inputs-$$" 2>/dev/null || return 1
    for name in "$@"; do
        [ ! -e "$folder/symmem-inputs-$$/$name" ] || { echo "$folder/symmem-inputs-$$" && return 0; }
    done
    rmdir "$folder/symmem-inputs-$$"
    return 1
}

# A command in a new group; then the group has to be gone.
in_group() { # FOLDER COMMAND...
    local folder=$1 result left kind
    shift
    kind=$(type -t "$1")
    (
        echo "$BASHPID" >"$folder/cgroup.procs" || exit 1
        [ "$kind" = function ] || exec "$@"
        "$@"
    )
    result=$?
    for ((left = 50; left > 0; left--)); do
        ! rmdir "$folder" 2>/dev/null || return "$result"
        sleep 0.1
    done
    return 1
}

# A container's memory: whatever ranks take at once, NO_SPACE and not the end of one. The file cache goes when
# memory is needed.
input_memory_group() {
    local folder bytes
    for bytes in 200000000 20000000 3000000 100000 1000; do
        folder=$(own_group memory memory.max memory.limit_in_bytes) || return 77
        { echo 128M >"$folder/memory.max" || echo 128M >"$folder/memory.limit_in_bytes"; } 2>/dev/null
        in_group "$folder" ranks 4 ./inputs fill "$bytes" || return 1
    done
    head -c 160M /dev/zero >"$work/cached"
    folder=$(own_group memory memory.max memory.limit_in_bytes) || return 77
    { echo 128M >"$folder/memory.max" || echo 128M >"$folder/memory.limit_in_bytes"; } 2>/dev/null
    # shellcheck disable=SC2016 # they are the other shell's
    in_group "$folder" bash -c 'cat "$1" "$1" >/dev/null; shift; "$@"' - "$work/cached" \
        env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LD_LIBRARY_PATH="$work/prefix/lib" "$work/inputs" limited none 110000000
}

# A container's processes and threads: with one there is no room for a stream's.
input_task_group() {
    local folder number said
    for number in 3 2 1; do
        folder=$(own_group pids pids.max) || return 77
        echo "$number" >"$folder/pids.max"
        said=$(in_group "$folder" env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LD_LIBRARY_PATH="$work/prefix/lib" \
            "$work/inputs" limited pids.max 4096) || return 1
        echo "$number: $said"
    done
    grep -q 'stream_create: LIMIT: .*pids.max of the control group' <<<"$said"
}

# In the background, as a rank of the world in a folder of that name. What it says goes to FOLDER.N.
as_rank() { # FOLDER RANK SIZE N PROGRAM...
    local folder=$1 number=$4
    RANK=$2 LOCAL_RANK=$2 WORLD_SIZE=$3 SYMMEM_STORE=file:$work/$folder program "${@:5}" \
        >"$work/$folder.$number" 2>&1 &
}

all_say() { # FOLDER PATTERN NUMBERS...
    local number
    for number in "${@:3}"; do
        cat "$work/$1.$number"
        grep -qE "$2" "$work/$1.$number" || return 1
    done
}

# Rank 1 is never started, and the others end at their first failure: each names rank 1 alone.
input_absent() {
    local round rank
    for round in 1 2 3 4 5; do
        for rank in 0 2 3; do as_rank "absent$round" "$rank" 4 "$rank" ./inputs once 600 without-1; done
        wait
        all_say "absent$round" '^TIMEOUT: failed rank 1, 1 missing: rank 1 did not arrive$' 0 2 3 || return 1
    done
}

# Two processes are one rank; worlds have other sizes; a list has another order: told at once, also to who
# comes when the others have found that out and ended.
input_contradictions() {
    local began=$SECONDS
    as_rank twice 0 2 0 ./inputs once 60000
    as_rank twice 0 2 1 ./inputs once 60000
    as_rank sizes 0 2 0 ./inputs once 60000
    as_rank sizes 1 3 1 ./inputs once 60000
    for rank in 0 1 2; do as_rank lists "$rank" 3 "$rank" ./inputs once 60000 lists; done
    wait
    all_say twice '^MISMATCH: .*two processes are rank 0 .*: [0-9]+ on .* and [0-9]+ on ' 0 1 &&
        all_say sizes '^MISMATCH: .*world of [23] ranks.*in one of [23]' 0 1 &&
        all_say lists "^MISMATCH: .*'met' has the ranks .*1, 0, 2" 0 1 2 && [ $((SECONDS - began)) -lt 30 ]
}

# A job is killed as a whole and started again in the same store.
input_killed_job() {
    local round rank
    for round in 1 2 3 4 5 6; do
        for rank in 0 1 2; do as_rank killed "$rank" 3 "old$rank" ./inputs once 60000 killed; done
        wait
        for rank in 0 1 2; do as_rank killed "$rank" 3 "$rank" ./inputs once 60000; done
        wait
        all_say killed '^OK$' 0 1 2 || return 1
    done
}

# The sockets of ranks that run are removed: the record names one.
input_removed_sockets() {
    local rank
    mkdir "$work/gone" && chmod 0700 "$work/gone" || return 1
    for rank in 0 1 2; do
        SYMMEM_SOCKET_DIR=$work/gone as_rank socketless "$rank" 3 "$rank" ./inputs rendezvous
    done
    sleep 1
    find "$work/gone" -type s -delete
    wait
    all_say socketless "^SYSTEM: .*rank [0-9] runs, but its socket's file is gone: .*/gone/" 0 1 2
}

# --- all of them ------------------------------------------------------------------------------------

names=("$@")
[ "$#" -gt 0 ] || mapfile -t names < <(compgen -A function | sed -n 's/^input_//p')
installed() {
    cmake --install "$build" --prefix "$work/prefix" || return 1
    [ -d "$work/prefix/lib" ] || ln -s lib64 "$work/prefix/lib" || return 1
    local program
    for program in inputs kept; do
        cc -std=gnu11 -O1 -D_GNU_SOURCE -Wall -Wextra -I "$work/prefix/include" \
            "$tests/${program/kept/inputs_kept}.c" -L "$work/prefix/lib" -lsymmem -lpthread -o "$work/$program" || return 1
    done
}
if ! installed >"$work/log" 2>&1; then
    tail -n 30 "$work/log"
    exit 1
fi
passed=0 failed=0 skipped=0
for name in "${names[@]}"; do
    "input_$name" >"$work/log" 2>&1 </dev/null
    case $? in
    0) echo "passed  $name" && passed=$((passed + 1)) ;;
    77) echo "skipped $name: not possible here" && skipped=$((skipped + 1)) ;;
    *) echo "FAILED  $name" && tail -n 30 "$work/log" | sed 's/^/    | /' && failed=$((failed + 1)) ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# inside.sh HOW BASE USER COMMAND...: process 1 of the namespaces that namespace.sh makes. Gives the
# command private folders and limits, takes its rights away and runs it. Nothing it leaves behind
# outlives this script, which takes the PID namespace with it.
set -u
how=$1 base=$2 user=$3
shift 3

refuse() {
    echo "inside.sh: $*" >&2
    exit 125
}

[ "$$" -eq 1 ] || refuse "not the first process of a PID namespace"
[ "$(readlink /proc/self/ns/pid)" != "${OUTER_PID_NAMESPACE:-}" ] && [ -n "$OUTER_PID_NAMESPACE" ] ||
    refuse "not in a PID namespace of its own"

# --- folders --------------------------------------------------------------------------------------

umask 022
# Opened now: either may lie in a folder that is covered below.
exec 9<"$base" || refuse "no $base"
[ -z "${SYMMEM_MUTANTS_OF:-}" ] || exec 8<"$SYMMEM_MUTANTS_OF" || refuse "no $SYMMEM_MUTANTS_OF"
mount --make-rprivate / || refuse "cannot make mounts private"
# Nothing in there wants the groups of processes, which often are a dozen mounts.
[ ! -d /sys/fs/cgroup ] || mount -t tmpfs -o ro tmpfs /sys/fs/cgroup || refuse "no /sys/fs/cgroup"
if [ "$how" != build ]; then
    # The user who runs this may own files outside. Covered folders, here or below, are out of reach, and
    # /proc is this namespace's own, where tests give their user namespaces a user.
    while read -r _ _ _ _ point _; do
        case $point in
        /proc | /mnt/* | /tmp/* | /var/tmp/* | /dev/shm | /sys/fs/cgroup/*) ;;
        *) mount -o remount,bind,ro "$point" 2>/dev/null ;;
        esac
    done </proc/self/mountinfo
fi
# The network namespace's own loopback, through which ranks may connect.
ip link set lo up || refuse "no loopback interface"
mount -t tmpfs -o size=1g,mode=755 tmpfs /mnt && mkdir /mnt/base /mnt/tree || refuse "no /mnt"
for folder in /tmp /var/tmp /dev/shm; do
    mount -t tmpfs -o size=1g,mode=1777 tmpfs "$folder" || refuse "no $folder"
done
export TMPDIR=/tmp # whatever it was out there, it is covered or read-only
case $how in
build) mount -c --bind /proc/self/fd/9 /mnt/tree ;;
use) mount -c --bind /proc/self/fd/9 /mnt/tree && mount -o remount,bind,ro /mnt/tree ;;
copy)
    mount -c --bind /proc/self/fd/9 /mnt/base && mount -o remount,bind,ro /mnt/base || refuse "no base"
    # Only what is written is copied, where the system can do that.
    if ! { mkdir /mnt/{upper,work} && chmod 777 /mnt/upper && mount -t overlay \
        -o lowerdir=/mnt/base,upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/tree; } 2>/dev/null; then
        chmod 1777 /mnt/tree
        set -- bash -c 'cp -dR --preserve=mode,timestamps /mnt/base/src /mnt/base/build . &&
            exec "$@"' bash "$@"
    fi
    ;;
esac || refuse "no /mnt/tree"
exec 9<&-
if [ -n "${SYMMEM_MUTANTS_OF:-}" ]; then
    cat <&8 >/mnt/backend.so || refuse "no /mnt/backend.so"
    export SYMMEM_MUTANTS_OF=/mnt/backend.so
fi
cd /mnt/tree || refuse "no /mnt/tree"
[ "$how" != build ] || { "$@"; exit; }

# --- limits and rights ----------------------------------------------------------------------------

ulimit -c 0
ulimit -t 60
ulimit -f 1048576
# ThreadSanitizer reserves most of the address space. (Its own limit costs a thread, which the suite
# would take for one that was left behind.)
[ -n "${UNLIMITED_ADDRESSES:-}" ] || ulimit -v 16777216
rights=(--no-new-privs --bounding-set=-all --inh-caps=-all)
if [ "$(awk '{ print $3; exit }' /proc/self/uid_map)" = 1 ]; then
    ulimit -u "${PROCESSES:-2000}" # an older kernel counts what the real user runs elsewhere, too
else
    ulimit -u "${PROCESSES:-700}"
    rights+=(--reuid "$user" --regid "$user" --clear-groups)
fi
export HOME=/tmp CCACHE_DIR=/tmp/ccache
setpriv "${rights[@]}" "$@"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# contain.sh COMMAND...: runs a fuzz target where it can do no harm: as an unprivileged user in mount,
# PID, IPC and network namespaces of its own, with a private /tmp and /dev/shm and limits. Where the
# machine does not permit that it runs the command with the limits alone, and says so.
# The command's paths must be absolute. Folders it writes to must be writable by all users.
set -u
self=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/contain.sh
user=64890 # no account has this number

limit() {
    ulimit -c 0
    ulimit -n 1024
}

# The second half: process 1 of the namespaces.
if [ "${1:-}" = --inside ]; then
    shift
    mount --make-rprivate / || exit 125
    for folder in /dev/shm /tmp /var/tmp; do
        # Not over the program itself; the targets write below TMPDIR only.
        [[ $1/ != "$folder"/* && $PWD/ != "$folder"/* ]] || continue
        mount -t tmpfs -o size=512m,mode=1777 tmpfs "$folder" || exit 125
    done
    limit
    rights=(--no-new-privs --bounding-set=-all --inh-caps=-all)
    if [ "$(awk '{ print $3; exit }' /proc/self/uid_map)" = 1 ]; then
        ulimit -u 2000 # counts what the real user runs elsewhere, too
    else
        ulimit -u 200
        rights+=(--reuid "$user" --regid "$user" --clear-groups)
    fi
    export HOME=/tmp TMPDIR=/dev/shm
    exec setpriv "${rights[@]}" "$@"
fi

namespaces=(--mount --pid --ipc --net --fork --kill-child --mount-proc)
[ "$(id -u)" -eq 0 ] || namespaces+=(--user --map-root-user)
if unshare "${namespaces[@]}" bash "$self" --inside true 2>/dev/null; then
    exec unshare "${namespaces[@]}" bash "$self" --inside "$@"
fi
echo "contain.sh: namespaces are not permitted here, only limits hold" >&2
limit
exec "$@"

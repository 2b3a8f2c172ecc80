# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Running something dangerous so that it harms nothing outside: an unprivileged user in PID, mount,
# IPC and network namespaces of their own, with limits. To be sourced; inside.sh is the other half.

mutants=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1

# Numbers that no account has, one for each lane of each run: a limit on processes counts a user's
# processes, wherever they run. Low enough for containers that know only 65536 users.
export MUTANT_USERS=${MUTANT_USERS:-$((30000 + $$ % 400 * 64))}
lane_user() { # LANE
    echo $((MUTANT_USERS + $1 % 64))
}

namespaces=(--mount --pid --ipc --net --fork --kill-child --mount-proc)
# Without the right to make the others, a user namespace comes first; then there is but one user.
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
    lanes_have_users=1
else
    lanes_have_users=
    namespaces+=(--user --map-root-user)
fi

# Runs a command in there, at most SECONDS long. HOW: build (keeps its rights and writes to BASE),
# use (BASE as it is, read-only) or copy (a copy of BASE that is thrown away). Either way the command
# finds it in /mnt/tree.
contained() { # SECONDS HOW BASE LANE COMMAND...
    local seconds=$1 how=$2 base=$3 lane=$4
    shift 4
    OUTER_PID_NAMESPACE=$(readlink /proc/self/ns/pid) \
        timeout -k 5 "$seconds" unshare "${namespaces[@]}" \
        bash "$mutants/inside.sh" "$how" "$base" "$(lane_user "$lane")" "$@" </dev/null
}

# --- is it safe? ----------------------------------------------------------------------------------

# A process outside, of the user that runs inside. Ends with 7 if a signal gets through to it.
start_canary() { # LANE
    local user=()
    [ -z "$lanes_have_users" ] ||
        user=(setpriv --reuid "$(lane_user "$1")" --regid "$(lane_user "$1")" --clear-groups)
    "${user[@]}" bash -c 'trap "exit 7" CONT TERM; for _ in {1..3000}; do sleep 0.1; done' \
        </dev/null >/dev/null 2>&1 &
    canary=$!
    sleep 0.2 # until its trap is set
}

# True if it still lives; it is ended.
canary_unharmed() {
    local unharmed=1
    sleep 0.2
    kill -0 "$canary" 2>/dev/null && unharmed=0
    kill -KILL "$canary" 2>/dev/null
    wait "$canary" 2>/dev/null
    return "$unharmed"
}

# Proves with a harmless signal that a process inside cannot reach one outside. Otherwise
# says why not.
containment_works() { # BASE
    local output status
    start_canary 0
    # shellcheck disable=SC2016
    output=$(contained 20 use "$1" 0 bash -c 'kill -CONT -- -1; kill -0 "$0" 2>/dev/null && exit 9
        echo "in namespace as user $(id -u)"' "$canary" 2>&1)
    status=$?
    if ! canary_unharmed; then
        echo "a signal sent inside a PID namespace arrived outside"
        return 1
    fi
    if [ "$status" -ne 0 ] || [[ $output != *"in namespace as user"* ]]; then
        echo "namespaces are not permitted here (${output:-no output}, status $status)"
        return 1
    fi
}

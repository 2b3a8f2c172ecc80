#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The floors of core/ and of backend_cuda/: a file includes headers of its own floor and of those below it.
# The files in the folder itself stand above all floors. A backend includes no private header of another one.
# No folder has two files with a static function of one name.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1
failures=0
complain() { echo "$*" && failures=1; }
declare -A height

# Each floor is a folder, or several with commas between them. Headers in the folder itself are for all.
check_floors() { # FOLDER FLOOR...
    local root=$1 floor name number=0 file include own header
    height=()
    shift
    for floor; do
        number=$((number + 1))
        for name in ${floor//,/ }; do height[$name]=$number; done
    done
    while IFS=: read -r file include; do
        own=${file#"$root"/}
        own=${own%/*}
        header=${include#*\"}
        header=${header%\"*}
        [ -f "$root/$header" ] || continue
        floor=${header%/*}
        [ "${height[$own]:-99}" -ge "${height[$floor]:-0}" ] ||
            complain "$file includes \"$header\" of a floor above its own"
    done < <(grep -HE '^#include "' "$root"/*.[ch] "$root"/*/*.[ch])
}
check_floors core base store bootstrap backend memory rendezvous stream ops
check_floors backend_cuda driver stream,inflight memory signal collective product
while IFS=: read -r file include; do
    header=${include#*\"}
    header=${header%\"*}
    { [ -f "core/$header" ] && [ "${header%/*}" != "$header" ]; } || complain "$file includes \"$header\", which is no core/FLOOR/NAME.h"
done < <(grep -HE '^#include "' core/*.c core/*/*.[ch])
for file in backend_nccl/*.[ch] backend_shm_emul/*.[ch] backend_shm_emul/*/*.[ch]; do
    while read -r header; do
        [ -f "${file%/*}/$header" ] || [ ! -f "backend_cuda/$header" ] || [ "$file:$header" = backend_nccl/nccl_internal.h:cuda_device.h ] ||
            complain "$file includes \"$header\" of backend_cuda"
    done < <(sed -n 's/^#include "\(.*\)"/\1/p' "$file")
done
for folder in core/*/ backend_*/ backend_cuda/*/ backend_shm_emul/*/ kernels/*/; do
    count=$(find "$folder" -maxdepth 1 -name '*.c' | wc -l)
    [ "$count" -le 20 ] || complain "$folder has $count .c files, more than 20"
done
repeated() { # FOLDER: names of static functions that two of its files define
    local file
    for file in "$1"/*.c; do
        grep -hoE '^static [^=;(]*[ *][a-z_0-9]+\(' "$file" | grep -oE '[a-z_0-9]+\($' | sort -u
    done | sort | uniq -d
}
for folder in core core/* backend_shm_emul backend_shm_emul/* backend_nccl backend_cuda backend_cuda/* kernels/cpu; do
    compgen -G "$folder/*.c" >/dev/null || continue
    for name in $(repeated "$folder"); do
        complain "$folder: static $name) in two files"
    done
done
exit "$failures"

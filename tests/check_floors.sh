#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The floors of core/: a file includes headers of its own floor and of those below it, by their whole name.
# The files in core/ itself stand above all floors. No folder but core/bootstrap and core/store has two files
# with a static function of one name.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1
floors=(base store bootstrap backend memory rendezvous stream ops)
declare -A height
for i in "${!floors[@]}"; do height[${floors[i]}]=$i; done

failures=0
while IFS=: read -r file include; do
    own=${file#core/}
    own=${own%/*}
    header=${include#*\"}
    header=${header%\"*}
    if [ ! -f "core/$header" ] || [ "${header%/*}" = "$header" ]; then
        echo "$file includes \"$header\", which is no core/FLOOR/NAME.h"
        failures=1
    elif [ -n "${height[$own]:-}" ] && [ "${height[${header%/*}]}" -gt "${height[$own]}" ]; then
        echo "$file includes \"$header\" of a floor above its own"
        failures=1
    fi
done < <(grep -HE '^#include "' core/*.c core/*/*.[ch])
for folder in core/*/; do
    count=$(find "$folder" -maxdepth 1 -name '*.c' | wc -l)
    [ "$count" -le 20 ] || { echo "$folder has $count .c files, more than 20" && failures=1; }
done
repeated() { # FOLDER: names of static functions that two of its files define
    local file
    for file in "$1"/*.c; do
        grep -hoE '^static [^=;(]*[ *][a-z_0-9]+\(' "$file" | grep -oE '[a-z_0-9]+\($' | sort -u
    done | sort | uniq -d
}
for folder in core core/{base,backend,memory,rendezvous,stream,ops} backend_shm_emul backend_nccl backend_cuda backend_cuda/* kernels/cpu; do
    compgen -G "$folder/*.c" >/dev/null || continue
    for name in $(repeated "$folder"); do
        echo "$folder: static $name) in two files"
        failures=1
    done
done
exit "$failures"

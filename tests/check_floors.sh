#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The floors of core/: a file includes headers of its own floor and of those below it, by their whole name.
# The files in core/ itself stand above all floors.
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
exit "$failures"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# coverage.sh OUT BUILD: which lines of the product each conformance case and each unit test runs. BUILD is a
# build with SYMMEM_COVERAGE. Writes OUT/RUN/TEST, RUN being 4-process and unit, 2-thread for cases
# that have no processes, and of the whole suite ("all") 2-thread, 2-process, 3-process and 5-process: first
# "@ seconds", then a line a source file, "path line line ..."; and OUT/executable, the same of all lines that
# can run. What is there already is kept: remove OUT when the product has changed.
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../.." && pwd) || exit 1

# Counts as "path line ...", from gcov's annotated text on standard input; "#####" is a line that did not run.
lines() { # ALL
    awk -v root="$root/" -v all="$1" '
        / 0:Source:/ { path = $0; sub(/.* 0:Source:/, "", path); mine = index(path, root) == 1
            path = substr(path, length(root) + 1); next }
        mine && match($0, /^ *([0-9]+[*]?|[#=]+): *[0-9]+:/) {
            split($0, part, ":")
            if ((all || part[1] ~ /[0-9]/) && !seen[path, part[2] + 0]++)
                found[path] = found[path] " " (part[2] + 0)
        }
        END { for (path in found) print path found[path] }'
}

count() { # RUN TEST COMMAND...: in this lane's folder
    local out=$OUT/$1/$2 start status
    shift 2
    [ ! -s "$out" ] || return 0
    find "$lane" -name '*.gcda' -delete
    start=${EPOCHREALTIME/[.,]/}
    GCOV_PREFIX=$lane GCOV_PREFIX_STRIP=$strip timeout -k 5 900 "$@" >"$lane/log" 2>&1 </dev/null
    status=$?
    awk -v us=$((${EPOCHREALTIME/[.,]/} - start)) -v status="$status" 'BEGIN { printf "@ %.3f %d\n", us / 1e6, status }' >"$lane/out"
    find "$lane" -name '*.gcda' -exec gcov -t {} + 2>/dev/null | lines '' >>"$lane/out"
    mv "$lane/out" "$out"
}

if [ "${1:-}" = --one ]; then # RUN TEST, for a lane
    lane=$OUT/lanes/${LANE:-0}
    strip=$(tr -cd / <<<"$BUILD" | wc -c)
    if [ ! -d "$lane" ]; then
        mkdir -p "$lane"
        for part in symmem_core.dir symmem_shm_objects.dir; do
            (cd "$BUILD" && find "CMakeFiles/$part" -name '*.gcno' -exec cp --parents -t "$lane" {} +)
        done
    fi
    filter=$3
    [ "$filter" != all ] || filter='*'
    # A program that has changed since it was counted is counted again.
    [ "$2" != unit ] || [ -z "$(find "$root/tests/unit" -name "$3.c" -newer "$OUT/unit/$3" 2>/dev/null)" ] || rm -f "$OUT/unit/$3"
    case $2 in
    unit) count unit "$3" "$BUILD/bin/$3" ;;
    *) count "$2" "$3" "$BUILD/bin/symmem-conformance" --backend shm --ranks "${2%-*}" --rank-mode "${2#*-}" \
        --filter "$filter" --seed 1 --no-large --no-color ;;
    esac
    exit 0
fi

export OUT=$1 BUILD=$2 SYMMEM_TIMEOUT_SCALE=4
mkdir -p "$OUT"/{4-process,2-thread,2-process,3-process,5-process,unit} || exit 1
rm -rf "$OUT/lanes"
if [ ! -s "$OUT/executable" ]; then
    find "$BUILD"/CMakeFiles/symmem_{core,shm_objects}.dir -name '*.gcno' -exec gcov -t {} + 2>/dev/null |
        lines 1 >"$OUT/executable"
fi
in_lanes() {
    xargs -r -P "$(getconf _NPROCESSORS_ONLN)" --process-slot-var=LANE -L 1 bash "${BASH_SOURCE[0]}" --one
}
{
    printf '%s all\n' {2,3,5}-process 2-thread
    (cd "$BUILD/bin" && printf 'unit %s\n' test_*)
    GCOV_PREFIX=$OUT/lanes/list "$BUILD/bin/symmem-conformance" --list | cut -f 1 | sed 's/^/4-process /'
} | in_lanes
# Those that have no processes.
(cd "$OUT/4-process" && awk 'FNR == 2 { runs[FILENAME] } END { for (i = 1; i < ARGC; i++) if (!(ARGV[i] in runs)) print "2-thread " ARGV[i] }' ./*) |
    sed 's|[.]/||' | in_lanes
rm -rf "$OUT/lanes"

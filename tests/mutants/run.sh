#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [--jobs N] [--only GLOB] [--kind KIND] [--changed REVISION] [--sample PERCENT [--seed N]]
#        [--most N] [--output FILE.json] [--backend FILE.so] [--list | --prepare]
# makes the mutants of tables/, runs the tests that are to kill each, and prints a table; --list only prints
# their names, --prepare only builds what they are made from. See README.md.
# The last line is "N killed, N survived, N errors"; exit status 0 if all were killed, 1 if not,
# 2 for wrong usage, 4 if the unmutated product does not build or fails, 77 if mutants cannot be
# contained on this machine (then none is run).
set -u
# shellcheck source=tests/mutants/namespace.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/namespace.sh"
root=$(cd -- "$mutants/../.." && pwd) || exit 1

processors=$(getconf _NPROCESSORS_ONLN)
# More than processors: what hangs only waits, and lane.sh looks whether there is room. Each lane has a user
# of its own, of 64.
jobs=$((processors * 5 < 64 ? processors * 5 : 64)) only='*' kind='*' output='' stop=''
changed='' sample='' most='' seed=$(($(date +%s) / 86400)) # another sample each day
while [ "$#" -gt 0 ]; do
    [[ $1 != --prepare && $1 != --list ]] || { stop=${1#--} && shift && continue; }
    [ "$#" -gt 1 ] || { echo "run.sh: $1 wants a value, or is unknown" >&2; exit 2; }
    case $1 in
    --jobs) jobs=$2 ;;
    --only) only=$2 ;;
    --kind) kind=$2 ;;
    --changed) changed=$2 ;;
    --sample) sample=$2 ;;
    --seed) seed=$2 ;;
    --most) most=$2 ;;
    --output) output=$2 ;;
    --backend) SYMMEM_MUTANTS_OF=$(realpath -- "$2") || exit 2 ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
[[ $sample$seed$most =~ ^[0-9]+$ ]] || { echo "run.sh: --sample, --seed and --most want numbers" >&2; exit 2; }
if [ -n "${SYMMEM_MUTANTS_OF:-}" ]; then
    export SYMMEM_MUTANTS_OF
    kind=decorator # the others are of our own source
fi

WORK=$root/build-mutants TABLE=$root/build-mutants/table$stop # a list disturbs no run
export WORK TABLE
mkdir -p "$WORK"/{plain,tsan,fake} || exit 4
# The lanes' users may write to the content, of which they see a copy. Other users cannot get there.
chmod 700 "$WORK" && chmod 755 "$WORK"/{plain,tsan,fake} || exit 4

# --- the list ---------------------------------------------------------------------------------------

tool=$WORK/rows tables=("$mutants"/tables/*.txt)
[[ $tool -nt $mutants/rows.c && $tool -nt $mutants/source.c && $tool -nt $mutants/source.h ]] ||
    { "${CC:-cc}" -std=gnu11 -O1 -o "$tool.$$" "$mutants"/{rows,source}.c && mv "$tool.$$" "$tool"; } || exit 4
# Tabs between the fields, which are: name kind defects ranks mode filter expected description.
"$tool" list "${tables[@]}" >"$TABLE" || exit 2
# Harmful mutants come first. Then programs of their own, which mostly wait for their limits, alternate with
# the suite and its compiler, which compute, so that not all lanes wait at once. The longest waits stand side
# by side in the lists, so the order is drawn by lot, always the same. At the end only the suite is left,
# which is quick.
selected=()
while IFS=$'\t' read -r name its_kind _; do
    # shellcheck disable=SC2053
    [[ $name != $only || $its_kind != $kind ]] || selected+=("$name")
done < <(shuf --random-source="$TABLE" "$TABLE" |
    awk -F'\t' -v OFS='\t' '{ print ($2 == "contained" ? 0 : ++count[$2 ~ /unit|fake/]), $0 }' |
    sort -s -n -k 1,1 | cut -f 2-)
no_mutant() { # REASON; none is fine where few are chosen, but not where one was asked for
    echo "run.sh: $1" >&2
    [ -n "$changed$sample" ] || exit 2
    [ "$stop" = list ] || echo "0 killed, 0 survived, 0 errors"
    exit 0
}

[ "${#selected[@]}" -gt 0 ] || no_mutant "no mutant is called that"
if [ -n "$changed$sample" ]; then
    # shellcheck source=tests/mutants/choose.sh
    . "$mutants/choose.sh"
    choose || exit 2
fi
if [ "$stop" = list ]; then
    printf '%s\n' "${selected[@]}"
    exit
fi
rm -rf "$WORK"/{results,logs,baseline-failed} && mkdir "$WORK"/{results,logs} || exit 4

field() { # NAME NUMBER
    awk -F'\t' -v name="$1" -v number="$2" '$1 == name { print $number }' "$TABLE"
}

leave_out() { # KINDS REASON
    mapfile -t kept < <(for name in "${selected[@]}"; do
        [[ $(field "$name" 2) =~ ^($1)$ ]] || echo "$name"
    done)
    [ "${#kept[@]}" -eq "${#selected[@]}" ] ||
        echo "$((${#selected[@]} - ${#kept[@]})) left out: $2"
    selected=("${kept[@]}")
    [ "${#selected[@]}" -gt 0 ] || no_mutant "no mutant is left"
}

has_header() { # NAME
    local cuda=/usr/local/cuda
    echo "#include <$1>" | cc -I"${NCCL_HOME:-$cuda}/include" -I"$cuda/include" -E - >/dev/null 2>&1
}

# The CUDA backend is nothing without its kernels, and its tests want DLPack's header.
if ! { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null ||
    ! has_header dlpack/dlpack.h; then
    leave_out 'fake|gpu_unit' "no nvcc, or no dlpack/dlpack.h"
elif ! has_header nccl.h; then
    leave_out gpu_unit "no nccl.h"
fi

unlisted=$(comm -3 <(sed -nE 's/^    \{"([a-z0-9_]+)".*/\1/p' "$mutants"/decorator/*.c | sort) \
    <(awk -F'\t' '$2 ~ /^(decorator|contained)$/ { print $1 }' "$TABLE" | sort) | tr '\t\n' '  ')
[ -z "$unlisted" ] || { echo "run.sh: a plug-in without a row, or a row without: $unlisted" >&2; exit 2; }

if ! reason=$(containment_works "$WORK/plain"); then
    echo "mutants cannot be contained here: $reason"
    exit 77
fi

# --- the unmutated product ----------------------------------------------------------------------------

checksums() { # FOLDER
    (cd "$1" && find . -type f -exec sha256sum {} + | sort)
}

# A file that is as it was in the last copy keeps its time there, any other gets today's: its own may
# be older than an object that was compiled from the one before, while it was being changed.
copy_source() { # BASE
    rm -rf "$1/new" && mkdir -p "$1"/{src,new} || return 1
    (cd "$root" && {
        git ls-files -z --cached --others --exclude-standard 2>/dev/null ||
            find . -path './build*' -prune -o -type f -print0
    } | while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
        xargs -0 cp -d --preserve=mode --parents -t "$1/new") && chmod -R a+rwX "$1/new" &&
        checksums "$1/new" >"$1/sums" || return 1
    # The names of those that are alike, behind the checksum and two characters.
    checksums "$1/src" | comm -12 - "$1/sums" | cut -c 67- | tr '\n' '\0' |
        (cd "$1/src" && xargs -0 -r cp -d --preserve=mode,timestamps --parents -t ../new) &&
        rm -rf "$1/src" && mv "$1/new" "$1/src"
}

make_base() { # BASE TARGETS CMAKE_OPTIONS...
    local base=$1 targets=$2 generator="Unix Makefiles"
    shift 2
    ! command -v ninja >/dev/null || generator=Ninja
    copy_source "$base" || return 1
    # From the same as last time, and that went well?
    if cmp -s "$base/sums" "$base/build/made" && ! tr ' ' '\n' <<<"$targets" | grep -vqxFf "$base/build/made.targets"; then
        cp "$tool" "$base/build/rows"
        return
    fi
    rm -f "$base/build/made"
    # Quick to compile: what a mutant takes out leaves unused things behind. Nor is it looked for
    # new files with each mutant.
    contained 900 build "$base" 0 bash -c 'jobs=$1 targets=$2 && shift 2 && umask 022 &&
        cmake -S src -B build "$@" &&
        cmake --build build --parallel "$jobs" --target $targets &&
        chmod -R a+rwX build' bash "$processors" "$targets" -G "$generator" -DCMAKE_BUILD_TYPE=None \
        -DCMAKE_LINK_DEPENDS_NO_SHARED=ON -DCMAKE_SUPPRESS_REGENERATION=ON \
        -DCMAKE_C_FLAGS="-O0 -Wno-unused-function -Wno-unused-parameter -Wno-unused-variable \
-Wno-unused-but-set-variable -Wno-unused-label" "$@" >"$base.log" 2>&1 &&
        tr ' ' '\n' <<<"$targets" >"$base/build/made.targets" && cp "$tool" "$base/build/rows" &&
        mv "$base/sums" "$base/build/made" && return
    echo "the unmutated product does not build:"
    tail -n 30 "$base.log"
    return 1
}

suite_options=(-DSYMMEM_MUTANTS=ON -DSYMMEM_GPU_BACKENDS=OFF)
# The kernels' machine code does not run there and takes long to make, so any file will do. NCCL's small
# kernel has one form of it.
fakes_options=("-DSYMMEM_CUDA_CODE=arch=compute_75,code=compute_75"
    -DSYMMEM_CUDA_FATBIN=/mnt/tree/src/backend_cuda/CMakeLists.txt)

rows() { # of those selected
    printf '%s\n' "${selected[@]}" | awk -F'\t' 'NR == FNR { wanted[$1]; next } $1 in wanted' - "$TABLE"
}

# The targets that the mutants of some kinds need, on a line: each would make its own anew, and before them
# the unmutated product.
targets_of() { # KINDS
    rows | awk -F'\t' -v kinds="^($1)$" '
        function need(targets,    names, count, i) {
            count = split(targets, names, " ")
            for (i = 1; i <= count; i++) if (!needed[names[i]]++) print names[i]
        }
        $2 !~ kinds { next }
        $2 ~ /unit$/ { need("only_cases") }
        $2 == "gpu_unit" && /nccl|late_ending/ { need("symmem_backend_nccl unit_fake_nccl_22907") }
        $2 == "fake" { need("symmem_backend_cuda fake_cuda fake_cublaslt") }
        $2 == "fake" && /fake_cuda[.]suite/ { need("symmem-conformance") }
        $2 == "fake" && /nccl/ { need("symmem_backend_nccl unit_fake_nccl_22907") }
        $2 ~ /^(patch|tsan|decorator|contained)$/ { need("symmem-conformance symmem_backend_shm suite_plugin_reach") }
        $2 ~ /^(decorator|contained)$/ { need("mutants") }
        {
            count = split($6, tests, ",")
            for (i = 1; i <= count; i++) {
                sub(/@.*/, "", tests[i])
                if (sub(/^unit[.]/, "", tests[i]) && $2 ~ /unit$/) need(tests[i])
                if (sub(/^fake_cuda[.]/, "", tests[i]) && $2 == "fake" &&
                    match(tests[i], /^(caller|eager_calls|launches|old_core|one_rank|small_memory|waits|launch_timeout)/))
                    need(substr(tests[i], 1, RLENGTH) == "caller" ? "symmem-cuda-caller" : substr(tests[i], 1, RLENGTH))
            }
        }' | sort | paste -sd ' '
}

targets=$(targets_of 'patch|unit|decorator|contained')
[ -z "$targets" ] || make_base "$WORK/plain" "$targets" "${suite_options[@]}" || exit 4
targets=$(targets_of tsan)
[ -z "$targets" ] || make_base "$WORK/tsan" "$targets" "${suite_options[@]}" -DSYMMEM_SANITIZE=thread || exit 4
targets=$(targets_of 'fake|gpu_unit')
[ -z "$targets" ] || make_base "$WORK/fake" "$targets" "${fakes_options[@]}" || exit 4

[ -z "$stop" ] || exit 0

in_lanes() { # NAME...
    # Process slots count from 0; so do lanes.
    printf '%s\n' "$@" | xargs -P "$jobs" --process-slot-var=LANE -n 1 bash "$mutants/lane.sh"
}

# All that the mutants are to be killed by must pass without them, or a kill means nothing.
baselines=()
while IFS=$'\t' read -r its_kind ranks mode filter; do
    name=baseline-$((${#baselines[@]} + 1))
    printf '%s\t%s\t-\t%s\t%s\t%s\t*\tno mutant\n' "$name" "$its_kind" "$ranks" "$mode" "$filter" \
        >>"$TABLE"
    baselines+=("$name")
done < <(
    rows | awk -F'\t' '{
        kind = "baseline"
        if ($2 ~ /^(tsan|unit|gpu_unit|fake)$/) kind = "baseline-" $2
        count = split($6, globs, ",")
        for (i = 1; i <= count; i++) {
            program = glob = kind "\t" $4 "\t" $5 "\t" globs[i]
            sub(/@.*/, "", program)
            if (program == glob || !seen[glob]++) cases[program] = cases[program] substr(glob, length(program) + 1)
            whole[program] = whole[program] || program == glob
        }
    }
    # All cases of a program that kill, in one run.
    END { for (program in cases) print program (whole[program] ? "" : cases[program]) }' | sort -ru | awk -F'\t' -v OFS='\t' '
        # Groups of a few patterns, so that the lanes have something to share; programs by themselves,
        # and first, for they take long.
        { key = $1 OFS $2 OFS $3; most = $1 ~ /unit|fake/ ? 1 : 6 }
        key != last || count >= most { if (list) print last, list; last = key; list = ""; count = 0 }
        { list = list (list ? "," : "") $4; count++ }
        END { if (list) print last, list }'
)
# They begin first, but what comes after them need not wait till they end: lane.sh makes no mutant any more
# once one has failed.
SECONDS=0
in_lanes "${baselines[@]}" "${selected[@]}"
if [ "$(cat "$WORK"/results/baseline-* | grep -c '^passed')" -ne "${#baselines[@]}" ]; then
    echo "the unmutated product fails the tests that are to kill the mutants"
    exit 4
fi

# The report that coverage/ reads, from the list and the results.
mutants_json() {
    local commit
    commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || echo unknown)
    printf '%s\n' "${selected[@]}" | awk -F'\t' -v commit="$commit" -v table="$TABLE" \
        -v results="$WORK/results/" '
    function text(value) {
        gsub(/\\/, "\\\\", value)
        gsub(/"/, "\\\"", value)
        return "\"" value "\""
    }
    function list(value, separator,    parts, count, i, result) {
        count = split(value, parts, separator)
        for (i = 1; i <= count; i++) {
            gsub(/^ +| +$/, "", parts[i])
            result = result (i > 1 ? ", " : "") text(parts[i])
        }
        return "[" result "]"
    }
    BEGIN {
        while ((getline line < table) > 0) {
            split(line, fields, "\t")
            row[fields[1]] = line
        }
        printf "{\n  \"commit\": %s,\n  \"mutants\": [\n", text(commit)
    }
    {
        split(row[$1], m, "\t")
        split("error\t0\t\tit was not run", r, "\t")
        file = results $1
        if ((getline line < file) > 0)
            split(line, r, "\t")
        close(file)
        count[r[1]]++
        printf "%s    {\"name\": %s, \"kind\": %s, \"museum\": %s, ", (NR > 1 ? ",\n" : ""),
            text(m[1]), text(m[2]), list(m[3], ",")
        printf "\"ranks\": %d, \"mode\": %s, \"expected\": %s, \"killed_by\": %s, ", m[4],
            text(m[5]), list(m[7], ","), list(r[3], " ")
        printf "\"status\": %s, \"seconds\": %s, \"description\": %s, \"remark\": %s}", text(r[1]),
            r[2], text(m[8]), text(r[4])
    }
    END {
        printf "\n  ],\n  \"summary\": {\"killed\": %d, \"survived\": %d, \"errors\": %d}\n}\n",
            count["killed"], count["survived"], count["error"]
    }'
}

[ -z "$output" ] || mutants_json >"$output"
killed=0 survived=0 errors=0 skipped=0
for name in "${selected[@]}"; do
    its_status=
    [ ! -f "$WORK/results/$name" ] || IFS=$'\t' read -r its_status _ <"$WORK/results/$name"
    case $its_status in
    killed) killed=$((killed + 1)) ;;
    survived) survived=$((survived + 1)) ;;
    skipped) skipped=$((skipped + 1)) ;;
    *) errors=$((errors + 1)) ;;
    esac
done
if [ "$skipped" -gt 0 ] && [ -z "${SYMMEM_MUTANTS_OF:-}" ]; then
    errors=$((errors + skipped)) # our own backend lacks nothing
fi
[ "$skipped" -eq 0 ] || echo "$skipped skipped: the backend lacks what their tests need"
printf 'unmutated: all pass\nall in %d s\n%d killed, %d survived, %d errors\n' "$SECONDS" "$killed" "$survived" "$errors"
[ "$survived" -eq 0 ] && [ "$errors" -eq 0 ]

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [--sample N] [--seed S] [--jobs N] [--only REGEX] [--again] [PREFIX...]: makes N of the generated
# mutants below the prefixes, runs the tests that execute each one's line, and prints what was killed. See
# README.md. What build-mutants/generate/results.jsonl has already is not run again, so a run that was ended
# goes on where it stopped; --again runs once more what survived or only unit tests killed, after tests were
# written. Exit status 0 after a whole run, 2 for wrong usage, 4 if something cannot be built, 77 if mutants
# cannot be contained here.
set -u
generate=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/mutants/namespace.sh
. "$generate/../namespace.sh"
root=$(cd -- "$generate/../../.." && pwd) || exit 1
processors=$(getconf _NPROCESSORS_ONLN)
sample=200 seed=1 jobs=$((processors * 2)) only='' again=''
while [[ ${1:-} == --* ]]; do
    [ "$1" != --again ] || { again=1 && shift && continue; }
    [ "$#" -gt 1 ] || { echo "run.sh: $1 wants a value" >&2; exit 2; }
    case $1 in
    --sample) sample=$2 ;;
    --seed) seed=$2 ;;
    --jobs) jobs=$2 ;;
    --only) only=$2 ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
prefixes=("$@")
[ "$#" -gt 0 ] || prefixes=(core/ backend_shm_emul/ kernels/cpu/)

WORK=$root/build-mutants/generate
export WORK
mkdir -p "$WORK"/{plain,tsan,logs} && chmod 700 "$root/build-mutants" "$WORK" && chmod 755 "$WORK"/{plain,tsan} || exit 4
cd "$root" || exit 4

fail() { # MESSAGE [LOG]
    echo "run.sh: $1" >&2
    [ -z "${2:-}" ] || tail -n 20 "$2" >&2
    exit 4
}

sums() { # FOLDERS
    find "$@" -type f ! -path '*/generate/*' ! -name '*.md' -exec sha256sum {} + | sort | sha256sum
}
product=(core backend_shm_emul kernels/*.h kernels/{cpu,reference})

# --- what mutants are made from ---------------------------------------------------------------------

# shellcheck disable=SC2016
make_base() { # BASE CMAKE_OPTIONS...
    local base=$1
    shift
    [ ! -d "$base/build" ] || cp "$generate/one.sh" "$base/build/" || return 1
    local references=1 units
    units=$(cd tests/unit && find . -name 'test_*.c' | sed 's|.*/||; s|[.]c$||')
    [ "$base" = "$WORK/plain" ] || references='' units='' # for orders, which the suite has to show
    sums "${product[@]}" >"$base/sums"
    ! cmp -s "$base/sums" "$base/references" || references=''
    cp "$base/sums" "$base/of" && sums "${product[@]}" tests CMakeLists.txt >"$base/sums" || return 1
    ! cmp -s "$base/sums" "$base/made" || return 0
    echo "building $base"
    # Times are kept, so that only what has changed is compiled again.
    rm -rf "$base/src" && mkdir -p "$base/src" "$base/build" || return 1
    { git ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -path './build*' -prune -o -type f -print0; } |
        while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
        tar -c --null -T - | tar -x -C "$base/src" && chmod -R a+rwX "$base/src" && cp "$generate/one.sh" "$base/build/" &&
        UNITS=$units REFERENCES=$references contained 1800 build "$base" 0 nice -n 10 bash -c 'jobs=$1 && shift && umask 022 &&
            cmake -S src -B build -G Ninja -DCMAKE_BUILD_TYPE=None -DSYMMEM_WERROR=OFF -DSYMMEM_GPU_BACKENDS=OFF \
                -DCMAKE_C_FLAGS="-O0 -w" -DCMAKE_SUPPRESS_REGENERATION=ON -DCMAKE_LINK_DEPENDS_NO_SHARED=ON \
                -DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld -DCMAKE_MODULE_LINKER_FLAGS=-fuse-ld=lld \
                -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld "$@" &&
            targets=suite &&
            { [ -z "$UNITS" ] || targets+=" $(ninja -C build -t targets all | sed -n "s/: phony$//p" | grep -xF "$UNITS")"; } &&
            ninja -C build -j "$jobs" $targets &&
            { [ -z "$REFERENCES" ] || find src/core src/backend_shm_emul src/kernels/cpu src/kernels/reference -name "*.c" |
                sed "s|^src/||" | xargs -P "$jobs" -n 1 bash build/one.sh --reference; } &&
            chmod -R a+rwX build' bash "$processors" "$@" >"$base.log" 2>&1 || return 1
    mv "$base/of" "$base/references" && mv "$base/sums" "$base/made"
}

make_tools() {
    local llvm
    llvm=$(dirname "$(find /usr/lib/llvm-*/include /usr/include -path '*clang-c/Index.h' 2>/dev/null | sort -V | tail -n 1)")
    [ "$llvm" != . ] || { echo "run.sh: no clang-c/Index.h: install libclang-dev" >&2; exit 4; }
    llvm=${llvm%/include/clang-c}
    ${CC:-cc} -std=gnu11 -D_GNU_SOURCE -O1 -I"$llvm/include" "$generate"/*.c -o "$WORK/mutate" \
        -L"$llvm/lib" -Wl,-rpath,"$llvm/lib" -lclang || exit 4
}

# Counted once; where the product has changed since, line numbers are moved.
make_coverage() {
    sums "${product[@]}" >"$WORK/coverage.sums"
    cmp -s "$WORK/coverage.sums" "$WORK/coverage/of" || "$generate/moved.sh" "$WORK/coverage" "$root" 2>/dev/null ||
        rm -rf "$WORK/coverage"
    rm -rf "$WORK/coverage/sources" && mkdir -p "$WORK/coverage/sources" &&
        find "${product[@]}" -type f -name '*.[ch]' -exec cp --parents -t "$WORK/coverage/sources" {} + &&
        cp "$WORK/coverage.sums" "$WORK/coverage/of" || return 1
    cmake -S . -B "$WORK/counting" -G Ninja -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Debug -DSYMMEM_COVERAGE=ON \
        -DSYMMEM_GPU_BACKENDS=OFF >"$WORK/counting.log" 2>&1 &&
        nice -n 10 ninja -C "$WORK/counting" -j "$processors" >>"$WORK/counting.log" 2>&1 || return 1
    nice -n 10 "$generate/coverage.sh" "$WORK/coverage" "$WORK/counting"
}

if ! reason=$(containment_works "$WORK/plain"); then
    echo "mutants cannot be contained here: $reason"
    exit 77
fi
make_tools
make_base "$WORK/plain" || fail "the unmutated product does not build" "$WORK/plain.log"
make_coverage || fail "the coverage build failed" "$WORK/counting.log"

# --- the sample -------------------------------------------------------------------------------------

"$WORK/mutate" --build "$WORK/counting" --root . --seed "$seed" "${prefixes[@]}" >"$WORK/all.tsv" || exit 4
"$WORK/mutate" --build "$WORK/counting" --root . core/ backend_shm_emul/ kernels/cpu/ | cut -f 1 >"$WORK/ids"
listed=$(grep -vE '^(#|$)' "$generate/equivalents.txt" | sed 's/ *|.*//' | while IFS= read -r id; do
    # A star stands for any number or operator.
    [[ $id == *'*'* ]] && grep -x "$(sed 's/[.[]/\\&/g; s/[*]/[^:]*/g' <<<"$id")" "$WORK/ids" || echo "$id"
done)
echo "$listed" >"$WORK/equivalents"
stale=$(grep -vxFf "$WORK/ids" <<<"$listed")
[ -z "$stale" ] || fail "equivalents.txt names what is no mutant any more: $stale"
head -n "$sample" "$WORK/all.tsv" | grep -E -- "$only" >"$WORK/sample.tsv"
cut -f 1 "$WORK/sample.tsv" >"$WORK/sample"

# Results of another state of a file are of other mutants.
: >>"$WORK/results.jsonl"
find "${product[@]}" -type f -exec sha256sum {} + | sort >"$WORK/results.now"
changed=$(cat "$WORK/results.of" "$WORK/results.now" 2>/dev/null | sort | uniq -u | awk '{ print "\"file\": \"" $2 "\"" }')
if [ -n "$changed" ]; then
    cp "$WORK/results.jsonl" "$WORK/results.old.jsonl"
    grep -vF "$changed" "$WORK/results.old.jsonl" >"$WORK/results.jsonl"
fi
mv "$WORK/results.now" "$WORK/results.of"
if [ -n "$again" ]; then
    sed -i '/"verdict": "survived"/d; /"by": "unit"/d' "$WORK/results.jsonl"
fi
sed -E 's/^\{"id": "([^"]*)".*/\1/' "$WORK/results.jsonl" >"$WORK/done"
awk -F'\t' 'FILENAME == ARGV[1] || FILENAME == ARGV[2] { done[$1]; next } !($1 in done)' "$WORK/done" <(echo "$listed") \
    "$WORK/sample.tsv" >"$WORK/open.tsv"

# Which tests execute each line: those first that have killed mutants of the file, then the cheapest. A line
# that has no code of its own belongs to what began before.
make_plans() { # BASE
    local base=$1
    rm -rf "$base/build/plans" && mkdir "$base/build/plans" || return 1
    (cd "$WORK/coverage" && awk -F'\t' -v plans="$base/build/plans" '
        FILENAME == "-" { file[FNR] = $3; line[FNR] = $5; count = FNR; of[$3] = of[$3] " " FNR; next }
        FILENAME == "executable" { n = split($0, at, " "); if (!(at[1] in of)) next
            m = split(of[at[1]], these, " ")
            for (j = 1; j <= m; j++) for (i = 2; i <= n; i++)
                if (at[i] <= line[these[j]] && at[i] > best[these[j]]) best[these[j]] = at[i] + 0
            next }
        FNR == 1 { split(FILENAME, name, "/"); split($0, head, " "); seconds = head[2]; next }
        { n = split($0, at, " "); if (!(at[1] in of)) next
          delete run; for (i = 2; i <= n; i++) run[at[i]]
          m = split(of[at[1]], these, " ")
          for (j = 1; j <= m; j++) if (best[these[j]] in run) {
              print these[j] "\t" name[1] "\t" seconds "\t" name[2]
              if (name[1] == "4-process") print these[j] "\t2-thread\t" seconds "\t" name[2] } }' \
        - executable {4,2}-process/* 2-thread/* {3,5}-process/* unit/* <"$WORK/open.tsv") |
        awk -F'\t' -v results="$WORK/results.jsonl" '
            BEGIN { while ((getline line <results) > 0) if (line ~ /"verdict": "killed"/) {
                split(line, part, "\""); for (i in part) { if (part[i] == "file") file = part[i + 2]; if (part[i] == "run") run = part[i + 2]
                    if (part[i] == "test") test = part[i + 2] }
                sub(/@.*/, "", test); kills[file, run, test]++ } }
            FILENAME == ARGV[1] { of[FNR] = $3; next }
            { print $0 "\t" kills[of[$1], $2, $4] + 0 }' "$WORK/open.tsv" - |
        sort -t $'\t' -k 1,1n -k 2,2 -k 5,5nr -k 3,3n >"$WORK/tests.tsv"
    (cd "$base/build/plans" && seq "$(wc -l <"$WORK/open.tsv")" | xargs -r mkdir &&
        awk -F'\t' '{ print >(FNR "/mutant"); close(FNR "/mutant") }' "$WORK/open.tsv" &&
        awk -F'\t' 'FILENAME == ARGV[1] { bad[$1, $2]; next } ($2, $4) in bad { next }
            $1 FS $2 != last { close(out); last = $1 FS $2; out = $1 "/" $2 } { print $3 "\t" $4 >out }' \
            "$WORK/failing.tsv" "$WORK/tests.tsv")
    # One run counted all cases in the other ways, so there what nothing else gets to gets them all.
    for plan in "$base"/build/plans/*; do
        [ ! -f "$plan/2-thread" ] || ! grep -v $'\tall$' "$plan/2-thread" >"$plan/named" || mv "$plan/named" "$plan/2-thread"
        rm -f "$plan/named"
        for run in 2-thread {2,3,5}-process; do
            grep -qs $'\tall$' "$plan/$run" || continue
            if [ -s "$plan/4-process" ] || { [ "$run" != 2-thread ] && [ -s "$plan/2-thread" ]; }; then
                rm "$plan/$run"
            else
                printf '15.0\t*\n' >"$plan/$run"
            fi
        done
    done
}

: >>"$WORK/passes.tsv"
: >>"$WORK/failing.tsv"
if ! cmp -s "$WORK/plain/made" "$WORK/passes.of"; then # what passes and what fails without a mutant
    : >"$WORK/passes.tsv"
    : >"$WORK/failing.tsv"
    cp "$WORK/plain/made" "$WORK/passes.of"
fi
make_plans "$WORK/plain" || fail "no plans"
chmod -R a+rX "$WORK/plain/build/plans"
in_lanes() { # HOW, or nothing; numbers on standard input
    xargs -r -P "$jobs" --process-slot-var=LANE -I NUMBER nice -n 10 bash "$generate/lane.sh" NUMBER "$@"
}
awk -F'\t' '$2 != "order" { print NR }' "$WORK/open.tsv" | in_lanes
# Orders, and what else only a race shows: locks that are left out.
sed -nE 's/^\{"id": "([^"]*)", .*"verdict": "survived".*/\1/p' "$WORK/results.jsonl" >"$WORK/survivors"
awk -F'\t' 'FILENAME == ARGV[1] { survived[$1]; next }
    $2 == "order" || ($1 in survived && $8 ~ /^(pthread_mutex_|atomic_)/) { print FNR }' "$WORK/survivors" "$WORK/open.tsv" >"$WORK/races"
if [ -s "$WORK/races" ]; then
    make_base "$WORK/tsan" -DSYMMEM_SANITIZE=thread || fail "the build with ThreadSanitizer failed" "$WORK/tsan.log"
    rm -rf "$WORK/tsan/build/plans" && cp -r "$WORK/plain/build/plans" "$WORK/tsan/build/plans"
    in_lanes races <"$WORK/races"
fi
"$generate/report.sh" "$WORK"
echo "sample of $sample, seed $seed, of ${prefixes[*]}"

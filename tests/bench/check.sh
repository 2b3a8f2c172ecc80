#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check.sh SYMMEM_BENCH BENCH_LIMITS ENDS ENGINE [FAKES]: each op runs for a moment and gives correct results
# (each is checked before it is timed), the lines are JSON, and what compares them understands them.
# Nothing here looks at a time. ENDS is a backend that ends its process. The ranks of ENGINE start together.
set -u -o pipefail
bench=${1:?usage: check.sh SYMMEM_BENCH BENCH_LIMITS ENDS ENGINE [FAKES]} limits=${2:?} ends=${3:?} engine=${4:?} fakes=${5:-}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
result=0
fail() {
    echo "failed: $*" >&2
    result=1
}

# shellcheck disable=SC2054
quick=(--bytes 8,4K --iterations 20 --warmup 1 --timeout 200 --json)
"$bench" --op all --ranks 2 "${quick[@]}" >"$work/ours" || fail "the ops, ranks as processes"
"$bench" --op barrier,put_wait --ranks 3 --rank-mode thread --input rewritten "${quick[@]}" \
    >>"$work/ours" || fail "ranks as threads"
# Captured in graphs, where an op can be; and on request, with what is none passed over.
"$bench" --op all --ranks 2 --graph 5 "${quick[@]}" >"$work/captured" || fail "the ops in graphs"
# One grep: another that ended at the first match would end this one by SIGPIPE.
grep -q '^{"op":"all_reduce",.*"graph":5,"clock":"host"' "$work/captured" || fail "no graph"
grep -q '^{"op":"rendezvous",.*"graph":' "$work/captured" && fail "rendezvous in a graph"
cat "$work/captured" >>"$work/ours"
printf 'barrier 0 4\nno_such_op 8 1\nput 8\nput -8 0\nput 99999999999999999999 0\none_shot_all_reduce 4096 0\n' |
    "$bench" --serve --ranks 2 "${quick[@]}" >"$work/served" 2>"$work/refused" || fail "--serve"
counts="$(grep -cx '{"done":true}' "$work/served") $(wc -l <"$work/served") $(wc -l <"$work/refused")"
[ "$counts" = "6 8 4" ] || fail "requests and answers: $counts"
# Of a backend whose engine starts on all ranks together the same; --bytes make room in its heap.
"$bench" --op all --ranks 2 --backend "$engine" "${quick[@]}" >"$work/engine" || fail "an engine"
grep -q '^{"op":"all_reduce",' "$work/engine" || fail "no line of an engine"
cat "$work/engine" >>"$work/ours"
request() { # LINE OPTION...: what is served goes to served, what is told to refused
    printf '%s\n' "$1" | "$bench" --serve --ranks 2 "${quick[@]}" "${@:2}" >"$work/served" 2>"$work/refused"
}
request "all_gather $((64 << 20)) 0" --backend "$engine" --bytes 64M || fail "--serve with an engine"
grep -q '^{"op":"all_gather","bytes":67108864,' "$work/served" || fail "no answer of an engine"
# What goes wrong is in the answer, and on standard error.
request "all_gather $((64 << 20)) 0" --backend "$engine" && fail "a heap that is too small was not told"
grep -q '^{"error":"rank 0: alloc of .*"}$' "$work/served" || fail "the answer is not what went wrong"
grep -q '^rank 0: alloc of ' "$work/refused" || fail "what went wrong was not told"
request 'barrier 0 4' --backend "$ends" && fail "a backend that ended its processes was a success"
grep -q '^{"error":"rank process [01] was ended in its midst, with status 0"}$' "$work/served" ||
    fail "the answer has no end"
grep -q '^rank process [01] was ended in its midst' "$work/refused" || fail "an end was not told"
"$limits" --op all --ranks 2 "${quick[@]}" >"$work/limits" || fail "the limits"

# One line an op at least, and every line what it should be.
for op in $("$bench" --list --op all); do
    grep -q "^{\"op\":\"$op\"," "$work/ours" || fail "no line of $op"
done
number='[0-9]+(\.[0-9]+)?' text='"[^"\\]*"'
pair="\"[a-z_0-9]+\":($number|$text|true|false)"
if grep -vxE "\{$pair(,$pair)*\}" "$work/ours" "$work/limits" >&2; then
    fail "these lines are not JSON"
fi

# Everything wrong is refused before a rank is started.
for wrong in "--op none" "--op barrier,none" "--op all,barrier" "--op barrier," "--op barrier --ranks 0" "--op put --bytes 1x" "--op put --bytes 1125899906842625" \
    "--op put --bytes 18446744073709551615" "--op put --dtype int3" "" \
    "--tune --ranks 1" "--tune --ranks 18" "--tune --op put" "--op put --checking maybe" \
    "--op put --graph 0" "--op put --serve" "--tune --graph 4" "--serve --checking both" \
    "--op put --graph 4 --input rewritten"; do
    # shellcheck disable=SC2086
    "$bench" $wrong >/dev/null 2>&1
    [ $? -eq 2 ] || fail "'$wrong' was not refused"
done
"$bench" --op barrier --backend no_such_backend >/dev/null 2>&1
[ $? -eq 3 ] || fail "a backend that is not there was not named as such"

# Results that cannot be written are no success.
"$bench" --op barrier "${quick[@]}" >/dev/full 2>"$work/unwritten" && fail "a full disk was not noticed"
grep -q '^the results could not be written$' "$work/unwritten" || fail "a full disk was not told"
"$bench" --list >/dev/full 2>&1 && fail "a list that was cut short was not noticed"
"$bench" --tune --ranks 2 --bytes 64 --iterations 9 --timeout 200 >/dev/full 2>&1 &&
    fail "a table that was cut short was not noticed"
"$limits" --op hop "${quick[@]}" >/dev/full 2>&1 && fail "limits that were cut short were not noticed"

begin() { # COMMAND...: in the background, until both ranks have told their names
    mkdir "$work/store"
    TMPDIR=$work/store "$@" --op barrier --ranks 2 --timeout 200 >/dev/null 2>&1 &
    ours=$!
    for _ in $(seq 100); do
        [ "$(find "$work/store" -name 'k*' | wc -l)" -lt 2 ] || break
        sleep 0.1
    done
}
nothing_is_left() {
    rmdir "$work/store" || fail "left behind: $(ls -R "$work/store")"
}
# Ranks that are killed leave nothing behind.
begin "$bench" --seconds 20
read -ra ranks <"/proc/$ours/task/$ours/children"
for rank in "${ranks[@]}"; do
    [ "$rank" -gt 1 ] && kill -KILL "$rank"
done
wait "$ours" && fail "killed ranks were not noticed"
nothing_is_left
# Nor does a run whose terminal goes away; under nohup it goes on.
begin "$bench" --seconds 20
kill -HUP "$ours"
wait "$ours" && fail "a run whose terminal went away succeeded"
nothing_is_left
begin nohup "$bench" --seconds 4
kill -HUP "$ours" || fail "it ended too early"
wait "$ours" || fail "nohup was not heeded"
nothing_is_left

# Checking off and on, interleaved: a line of each.
"$bench" --op barrier,all_reduce --checking both "${quick[@]}" >"$work/both" || fail "--checking both"
for op in barrier all_reduce; do
    for checking in true false; do
        grep -q "^{\"op\":\"$op\",.*\"checking\":$checking," "$work/both" ||
            fail "no line of $op with checking $checking"
    done
done

# The table: every world, place and size has a line, the crossovers are such that one-shot comes
# first, and the library takes what is printed; the unit test covers what it then chooses.
tune() {
    "$bench" --tune --bytes 4K,64,1K --iterations 20 --warmup 1 --timeout 200 "$@"
}
tune --ranks 3 --json >"$work/tuned" || fail "--tune"
for place in symmetric private; do
    for ranks in 2 3; do
        sed -n "s/^{\"tune\":\"all_reduce\",\"ranks\":$ranks,\"place\":\"$place\",\"bytes\":\([0-9]*\),.*\"chosen\":\"\(.*\)\"}$/\1 \2/p" \
            "$work/tuned" >"$work/cells"
        [ "$(cut -d' ' -f1 "$work/cells" | paste -sd,)" = 64,1024,4096 ] ||
            fail "not each size in a world of $ranks, $place"
        cut -d' ' -f2 "$work/cells" | sort -c || fail "choices that come and go"
    done
done
table=$(sed -n 's/^{"table":"\(.*\)"}$/\1/p' "$work/tuned")
entry='[01]:[0-9]+:([0-9]+|any):(one|two)_shot'
grep -qxE "$entry(,$entry)*" <<<"$table" || fail "no table but '$table'"
SYMMEM_ALL_REDUCE_TABLE=$table "$bench" --op all_reduce,all_reduce_copy_out --ranks 3 --checking on \
    "${quick[@]}" >/dev/null || fail "the table is not taken"
tune --ranks 2 >"$work/tuned" || fail "--tune for people"
grep -q '^static const symmem_all_reduce_entry all_reduce_table\[\] = {$' "$work/tuned" ||
    fail "no table in C"
table=$(sed -n 's/^export SYMMEM_ALL_REDUCE_TABLE=//p' "$work/tuned")
grep -qxE "$entry(,$entry)*" <<<"$table" || fail "no table but '$table'"
SYMMEM_ALL_REDUCE_TABLE=x "$bench" --op all_reduce "${quick[@]}" >/dev/null 2>&1 &&
    fail "a table that is none was taken"

"$here/run.sh" --help >/dev/null || fail "run.sh"

# What calls cost the host: a line each, without the driver's launch.
SYMMEM_BACKEND=shm "$here/../../core/symmem-run.sh" 2 "${bench%/*}/host-cost" 3 >"$work/host" || fail "host-cost"
[ "$(grep -cxE "\{$pair(,$pair)*\}" "$work/host")" -eq 6 ] || fail "not each call's cost: $(cat "$work/host")"

# Interleaved with other programs. Ours takes PyTorch's part; NVSHMEM and the driver are fakes.
turns() { # [options of gpu_turns.py]
    python3 -B "$here/gpu_turns.py" --bench "$bench" --backend shm --out "$work" --rounds 1 --sizes 4K --seconds 0.001 \
        --peer "torch=$peer --serve --json --dtype bfloat16 --seconds 0.001" "$@" >"$work/turns" 2>"$work/said"
}
if command -v python3 >/dev/null 2>&1; then
    # Two rounds, MPI's lines made up: as fast as ours.
    {
        sed 's/^{/{"round":0,/' "$work/ours" "$work/limits"
        sed 's/^{/{"round":1,/' "$work/ours"
        sed 's/^{/{"round":0,/; s/"library":"symmem"/"library":"Open MPI 0.0.0"/' "$work/ours"
    } >"$work/lines"
    compare=(python3 -B "$here/compare.py")
    "${compare[@]}" --bars --json "$work/all.json" <"$work/lines" >"$work/table" || fail "compare.py"
    grep -q 'barrier .* 1\.00 \[1\.00 \.\. 1\.00\]' "$work/table" || fail "the table has no ratio"
    tr -d '\n ' <"$work/all.json" |
        grep -q '"op":"barrier","bytes":0,"ranks":2,"input":"reused","wanted":2,"ratio":1\.0,' || fail "no bar in the JSON"
    "${compare[@]}" <"$work/lines" >/dev/full 2>&1 && fail "a comparison that was cut short was not noticed"
    "${compare[@]}" --json /dev/full <"$work/lines" >/dev/null 2>&1 && fail "JSON that was cut short was not noticed"
    "${compare[@]}" </dev/null >/dev/null 2>&1 && fail "a comparison of nothing succeeded"
    printf -v peer %q "$bench" # it may lie in a folder with any name
    turns --peers torch || fail "gpu_turns.py"
    grep -qE '^barrier .*[0-9] \[.*\]' "$work/turns" || fail "the table of turns has no ratio"
    [ -s "$work/results.json" ] || fail "gpu_turns.py has written nothing"
    turns --peers torch --ops barrier --backend "$engine" || fail "gpu_turns.py on an engine: $(cat "$work/said")"
    turns --peers torch --ops barrier --backend "$ends" && fail "ranks that were ended went unnoticed"
    grep -q '^symmem: barrier of 0 bytes: rank process [01] was ended' "$work/said" || fail "an end was not passed on"
    turns --ops barrier --peer nvshmem=/no/such/program && fail "a program that is not there was not missed"
    grep -q '^nvshmem: .*/no/such/program' "$work/said" || fail "a program that is not there was not named"
    grep -qx 'no slower than PyTorch: [01] of 1' "$work/turns" || fail "no turns without a program that is not there"
    for file in peer_torch.py peer_nvshmem.py peer_torch_nvshmem.py; do
        python3 -B -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$here/$file" ||
            fail "$file is not Python"
    done
    if [ -e "$fakes/libnvshmem_host.so.3" ] && [ -e "$fakes/libcuda.so.1" ]; then
        export LD_LIBRARY_PATH=$fakes FAKE_CUDA_ALONE=1
        turns --peers nvshmem || fail "gpu_turns.py with NVSHMEM: $(cat "$work/said")"
        grep -qx 'no slower than NVSHMEM: [0-9]* of 12' "$work/turns" || fail "not each op with NVSHMEM"
        grep -q '"nvshmem_broadcast_in_place": {' "$work/results.json" || fail "NVSHMEM's broadcast in place"
        # What ends it is not asked again, and the rest goes on.
        FAKE_NVSHMEM_ENDS=1 turns --peers nvshmem --ops broadcast,all_to_all &&
            fail "an end of NVSHMEM's was not told"
        grep -q '^all_to_all .* nvshmem_all_to_all$' "$work/turns" || fail "NVSHMEM was not started again"
    fi
fi
[ "$result" -eq 0 ] && echo "all as it should be"
exit "$result"

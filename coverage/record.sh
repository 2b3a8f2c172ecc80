#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# record.sh [FILE...]: adds results to coverage/results/recorded.tar.xz and writes the table of all that
# it has, coverage/results/README.md with times.svg. A run's JSON of symmem-conformance takes the place of the one with
# the same backend, ranks, mode and number of devices.
# record.sh --in FOLDER FILE...: files of tests/bench/gpu.sh (bench, fused of its fused products, host of host-cost),
# tests/gpu_sanitize.sh (sanitize) or of the checks of tests/gpu.sh (checks), each in place of the one of its
# name.
# record.sh --unpack FOLDER: all of it as files.
# record.sh --check: exit status 1 if table and drawing are not what the archive says.
# Needs jq and xz.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
archive=$here/results/recorded.tar.xz
table=$here/results/README.md
drawing=$here/results/times.svg
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# --- what is recorded --------------------------------------------------------------------------------

# "cuda-4-process", and behind it the devices where they are fewer or more than the ranks.
run_name() { # FILE
    jq -er 'if .results and .rank_mode then "\(.backend)-\(.ranks)-\(.rank_mode)" +
            (if .machine.accelerators == "" or .device_count == .ranks then ""
             else "-on-\(.device_count)" end)
        else error("not the results of a run") end' "$1"
}

add() { # FOLDER FILE...
    local folder=$1 file name
    shift
    mkdir -p "$work/all/$folder"
    for file in "$@"; do
        name=${file##*/}
        if [ "$folder" = runs ]; then
            name=$(run_name "$file").json
        fi
        cp -- "$file" "$work/all/$folder/$name"
    done
}

# The same bytes for the same files.
pack() {
    tar -C "$work/all" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r,a+X \
        --mtime='2026-01-01 00:00Z' -c . | xz -9e >"$work/archive"
    mv -- "$work/archive" "$archive"
}

# --- the table ---------------------------------------------------------------------------------------

header() { # COLUMN...
    printf '| %s ' "$@"
    printf '|\n'
    printf '| --- %.0s' "$@"
    printf '|\n'
}

# 580.159.04 of the driver's long line.
run_row='
    def devices: if .machine.accelerators == "" then "-"
        else "\(.device_count) of \(.machine.accelerators)" | sub("of 1 x "; "of ") end;
    def driver: .machine.driver | [scan("[0-9]+[.][0-9]+[.0-9]*")] | first // "-";
    def versions: [.runs_on, .build] | map(select(. != null and . != "")) | join(", ");'

runs() {
    header backend ranks mode devices driver versions passed failed skipped limits parts seconds commit date
    jq -r "$run_row"'
        "| " + ([.backend, .ranks, .rank_mode, devices, driver, versions, .summary.passed,
            .summary.failed + .summary.errors + .summary.unresolved, .summary.skipped,
            "x \(.timeout_scale // "?")", .parts // 1, (.seconds | round),
            .commit[:7], .started[:10]] | map(tostring) | join(" | ")) + " |"' "$work/all/runs"/*.json
}

sanitized() {
    header tool devices driver ranks passed failed skipped commit date said
    local tool
    for tool in memcheck racecheck synccheck; do
        jq -r --arg tool "$tool" --arg said "$(sed -n "s/^$tool: //p" "$work/all/sanitize/about.txt")" \
            "$run_row"'"| " + ([$tool, devices, driver, .ranks, .summary.passed,
            .summary.failed + .summary.errors + .summary.unresolved, .summary.skipped, .commit[:7],
            .started[:10], $said] | map(tostring) | join(" | ")) + " |"' "$work/all/sanitize/$tool.json"
    done
}

checks() {
    local file
    header check good bad skipped
    for file in "$work/all/checks"/*-*.txt; do
        printf '| %s | %d | %d | %d |\n' "$(basename "$file" .txt)" \
            "$(grep -c '^rank [0-9]*: good' "$file")" "$(grep -c '^rank [0-9]*: BAD' "$file")" \
            "$(grep -c '^rank [0-9]*: SKIPPED' "$file")"
    done
    printf '\n'
    sed 's/^/- /' "$work/all/checks/about.txt"
}

# Of all files: what has no size, by ranks. NVSHMEM's barrier that also ends writes, and the one that does not.
meetings() {
    header ranks barrier PyTorch NVSHMEM "NVSHMEM's sync" rendezvous PyTorch
    jq -rs '
        def us: if . == null then "-" elif . < 100 then . * 100 | round / 100 else round end;
        sort_by(.symmem.device, .ranks)[]
        | (.results | map({key: .op, value: .}) | from_entries) as $of
        | "| " + (["\(.ranks) on \(.symmem.device | sub("NVIDIA "; "") | sub(" .*"; ""))",
            ($of.barrier | (.symmem_us, .other_us.barrier, .other_us.nvshmem_barrier, .other_us.nvshmem_sync) | .median | us),
            ($of.rendezvous | (.symmem_us, .other_us.rendezvous) | .median | us)]
            | map(tostring) | join(" | ")) + " |"' "$work/all/bench"/*.json
}

# A row for each operation and size, a column for each file.
bench() {
    local files=("$work/all/bench"/*.json)
    jq -rs '
        def us: if . < 100 then . * 10 | round / 10 else round end;
        def library: if startswith("nccl_") then "N" elif startswith("nvshmem_") then "V" else "P" end;
        map("\(.ranks) on \(.symmem.device | sub("NVIDIA "; "") | sub(" .*"; ""))") as $heads
        | "| " + (["operation", "bytes"] + $heads | join(" | ")) + " |",
          "|" + (" --- |" * (2 + length)),
          ((map(.results) | max_by(length))[] as $row
           | "| " + ([$row.op, $row.bytes]
             + map(first(.results[] | select(.op == $row.op and .bytes == $row.bytes)) // null
                   | if . == null or .symmem_us == null or .best == null then "-"
                     else .best as $best
                     | "\(.symmem_us.median | us), \(.other_us[$best].median | us) \($best | library)" end)
             | map(tostring) | join(" | ")) + " |"),
          "",
          (.[] | "- \(.ranks) on \(.symmem.device): commit \(.symmem.commit[:7]), beside \(.other.library) and NCCL "
              + "\(.other.nccl)\(.others.nvshmem.library // "" | if . == "" then "" else " and " + . end), "
              + "\(.rounds) rounds\(.newer // "" | if . == "" then "" else "; " + . end)")' "${files[@]}"
}

# A row for each shape and way of a file's.
fused() {
    local file
    for file in "$work/all/fused"/*.json; do
        printf '\n'
        header operation 'M K N' way symmem PyTorch NCCL scheme
        jq -r 'def us: if . == null then "-" else . * 10 | round / 10 end;
            (.results[] | .us as $us
             | "| " + ([.op, "\(.m) \(.k) \(.n)", .way, ($us.symmem | us), ($us.torch | us), ($us.nccl | us),
                ($us.scheme | us)] | map(tostring) | join(" | ")) + " |"),
            "",
            "- \(.ranks) on \(.symmem.device): commit \(.symmem.commit[:7]), beside \(.others.about) and NCCL "
                + "\(.others.nccl), \(.rounds) rounds"' "$file"
    done
}

# A row for each call, a column for each file.
host() {
    local files=("$work/all/host"/*.json)
    jq -rs '
        group_by([.device, .ranks])
        | map({head: "\(.[0].ranks) on \(.[0].device | sub("NVIDIA "; "") | sub(" .*"; "")), commit \(.[0].commit[:7])", rows: .}) as $files
        | "| call | " + ($files | map(.head) | join(" | ")) + " |", "|" + (" --- |" * (1 + ($files | length))),
          ($files[0].rows[].op as $op
           | "| \($op) | " + ($files | map(first(.rows[] | select(.op == $op)) // null
               | if . == null then "-" else "\(.median_ns)" + (if .to_bare_launch then ", \(.to_bare_launch) x" else "" end) end)
               | join(" | ")) + " |")' "${files[@]}"
}

write_table() {
    cat <<'END'
# Recorded results

Made by `coverage/record.sh` from `recorded.tar.xz`: of each backend, number of ranks, mode and number of
devices the newest run of the whole suite. Failed includes errors and unresolved; *limits* is what time
limits were multiplied by; *parts* is how many runners shared the cases.

END
    runs
    printf '\n## compute-sanitizer\n\n'
    sanitized
    cat <<'END'

## Checks beside the suite

Lines that the ranks of symmem-cuda-check, symmem-nccl-check and symmem-cuda-caller (`tests/gpu.sh`) wrote.

END
    checks
    cat <<'END'

## Times

Medians of `tests/bench/gpu.sh` in microseconds. Those of the run with most operations:

![Times of the collectives by size, and of the barrier](times.svg)

Meetings, where the column on the left is symmem's:

END
    meetings
    cat <<'END'

Collectives, symmem's first, then the best of the others: PyTorch (P), NCCL (N), NVSHMEM (V).

END
    bench
    if [ -d "$work/all/host" ]; then
        cat <<'END'

## The host's time

Nanoseconds of `host-cost`: of a call on a stream until it returns, of a graph's launch for each operation in it, of a
call without a stream until it is over; and how many times the driver's launch of the same kernel that is.

END
        host
    fi
    [ -d "$work/all/fused" ] || return 0
    cat <<'END'

## Fused products

Medians of `tests/bench/gpu.sh` in microseconds: our operation; PyTorch's asynchronous tensor parallelism, which it
may refuse in a graph; NCCL and a plain product; the least scheme that hides a transfer (`tests/bench/fused_torch.py`).
END
    fused
}

draw() {
    jq -rs -f "$here/times.jq" "$work/all/bench"/*.json
}

# ------------------------------------------------------------------------------------------------------

mkdir "$work/all"
[ ! -f "$archive" ] || tar -C "$work/all" -xJf "$archive"
case "${1:-}" in
--unpack)
    mkdir -p -- "$2"
    cp -r "$work/all/." "$2/"
    exit
    ;;
--check)
    if ! write_table | diff -u "$table" - || ! draw | cmp -s "$drawing" -; then
        echo "coverage/record.sh writes another table or drawing" >&2
        exit 1
    fi
    exit
    ;;
--in)
    [[ ${2:-} =~ ^(bench|fused|host|sanitize|checks)$ ]] || { sed -n '/^# /s/^# //p' "$0" >&2; exit 2; }
    add "${@:2}"
    pack
    ;;
-*)
    sed -n '/^# /s/^# //p' "$0" >&2
    exit 2
    ;;
*)
    if [ $# -gt 0 ]; then
        add runs "$@"
        pack
    fi
    ;;
esac
write_table >"$work/table"
draw >"$work/drawing"
mv -- "$work/table" "$table"
mv -- "$work/drawing" "$drawing"
chmod 644 "$table" "$drawing" "$archive"

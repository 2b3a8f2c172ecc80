#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# report.sh WORK: the table of the mutants in WORK/sample, from WORK/results.jsonl.
set -u
awk -v ids="$1/sample" -v equivalents="$1/equivalents" '
    function field(name) { # of the line; the names of what has no quotes come last
        if (!match($0, "\"" name "\": \"([^\"\\\\]|\\\\.)*\"")) return ""
        return substr($0, RSTART + length(name) + 5, RLENGTH - length(name) - 6)
    }
    function count(what, verdict) { n[what, verdict]++; if (!(what in known)) { known[what]; order[++kinds] = what } }
    function part(a, b) { return b ? sprintf("%5.1f %%", 100 * a / b) : "      -" }
    function row(what,   real, suite, unit) {
        suite = n[what, "suite"]; unit = n[what, "unit"]
        real = suite + unit + n[what, "survived"]
        printf "%-18s %6d %6d %6d %9d %11d %13d %6d  %s  %s\n", what, real, suite, unit, n[what, "survived"],
            n[what, "equivalent"], n[what, "uncompilable"], n[what, "error"], part(suite, real), part(suite + unit, real)
    }
    BEGIN {
        while ((getline line <equivalents) > 0) is_equivalent[line]
        while ((getline line <ids) > 0) { split(line, at, "\t"); sampled[at[1]]; total++ }
    }
    { id = field("id"); if (id in sampled) last[id] = $0 }
    END {
        for (id in sampled) {
            if (id in is_equivalent) { verdict = "equivalent"; $0 = "" }
            else if (!(id in last)) { open++; continue }
            else { $0 = last[id]; verdict = field("verdict"); if (verdict == "killed") verdict = field("by") }
            directory = id; sub(/:.*/, "", directory); sub(/\/[^\/]*$/, "", directory); operator = id; sub(/.*:/, "", operator)
            split(directory, top, "/"); if (top[1] == "core") directory = "core"
            if (match($0, /"cpu": [0-9.]+/)) { cpu += substr($0, RSTART + 7, RLENGTH - 7); timed++ }
            count("all", verdict); count(directory, verdict); count("- " operator, verdict)
            if (directory != "core") count("backends alone", verdict)
            if (verdict == "survived") survivors[id] = field("line") " " field("old") " -> " field("new") " (" field("remark") ")"
        }
        printf "%-18s %6s %6s %6s %9s %11s %13s %6s  %7s  %7s\n", "", "made", "suite", "unit", "survived", "equivalent",
            "uncompilable", "error", "suite", "all"
        for (i = 1; i <= kinds; i++) if (order[i] !~ /^-/) row(order[i])
        for (i = 1; i <= kinds; i++) if (order[i] ~ /^-/) row(order[i])
        if (timed) printf "%.1f s of processor time for each of the %d that were run\n", cpu / timed, timed
        if (open) printf "%d of %d have no verdict yet\n", open, total
        for (id in survivors) print "survived: " id " " survivors[id] | "sort"
    }' "$1/results.jsonl"

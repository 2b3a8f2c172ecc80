# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The report that coverage/ reads, from the list and the results of a run. To be sourced by run.sh.

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

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# findings.sh FILE...: from result files of the suite (--report json=FILE) a table of requirements by engines,
# for FINDINGS.md. A column is an engine as it describes itself, with all files of its runs. A row is a
# requirement that a case of some run found violated, with the cases; a case that the end of the run cut off
# says nothing.
set -u
[ "$#" -gt 0 ] || { echo "usage: findings.sh FILE..." >&2; exit 1; }
jq -rs '
    def bad: .status == "failed" or .status == "error";
    def passed: .status == "passed" or ([.findings[]?.requirement] | unique == ["SM-LIFE-01"]); # but for leaks
    def cut: any(.findings[]?; .message // "" | contains("the run was interrupted"));
    # A check that names no requirement is one of all that its case has.
    def violated: .requirements as $all |
        [.findings[]? | (.requirement // "" | split(",")[]), (select(.requirement == null and .file) | $all[])] |
        unique | if . == [] then $all else . end;
    def cases($id): [.results[] | select(bad and (violated | index($id))) | .test] | unique;
    def cell($id): cases($id) as $cases |
        if $cases != [] then "violated: " + ($cases[:3] | join(", ")) +
            (if $cases | length > 3 then " and \($cases | length - 3) more" else "" end)
        elif any(.results[]; passed and (.requirements | index($id))) then "held"
        else "not tested" end;
    [group_by(.description)[] | {description: .[0].description, results: [.[].results[] | select(cut | not)]}]
        as $runs |
    "| requirement | " + ([$runs[].description] | join(" | ")) + " |",
    "| --- |" + ("" + ([$runs[] | " --- |"] | join(""))),
    ([$runs[].results[] | select(bad) | violated[]] | unique[]) as $id |
    "| " + $id + " | " + ([$runs[] | cell($id)] | join(" | ")) + " |"' "$@"

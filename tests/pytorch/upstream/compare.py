# SPDX-License-Identifier: BSD-3-Clause
"""compare.py REPORT EXPECTED TESTS: what PyTorch's tests did, beside what is expected of them.

REPORT is pytest's JUnit file, TESTS the file with the tests. EXPECTED has a line for each test
that does not pass: its id, Class.test, perhaps with * for some letters; a tab; "skipped" or
"failed"; a tab; the reason. All others are expected to pass.
"""

from __future__ import annotations

import collections
import fnmatch
import re
import sys
import xml.etree.ElementTree as ElementTree

Expectation = tuple[str, str, str]  # pattern, verdict, reason


def cause(failure: ElementTree.Element) -> str:
    """The innermost exception: those of ranks stand in the text of the test's own."""
    text = f"{failure.get('message', '')}\n{failure.text or ''}"
    named = re.findall(r"^[E ]*((?:\w+\.)*\w*(?:Error|Exception): .*\w.*)", text, re.MULTILINE)
    return next((line for line in reversed(named) if " worker process" not in line), "")


def results(report: str) -> dict[str, tuple[str, str]]:
    """Verdict and reason of each test."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("classname", "").rpartition(".")[2] + "." + case.get("name", "")
        verdict, reason = "passed", ""
        for child in case:
            if child.tag in ("failure", "error"):
                verdict, reason = "failed", cause(child)
            elif child.tag == "skipped":
                verdict, reason = "skipped", child.get("message", "")
        found[name] = (verdict, reason)
    return found


def expectations(file: str) -> list[Expectation]:
    with open(file) as lines:
        rows = (
            line.rstrip("\n").split("\t")
            for line in lines
            if line.strip() and not line.startswith("#")
        )
        return [(row[0], row[1], row[2]) for row in rows]


def expected_of(name: str, known: list[Expectation]) -> tuple[str, str]:
    return next(
        ((verdict, reason) for pattern, verdict, reason in known if fnmatch.fnmatch(name, pattern)),
        ("passed", ""),
    )


def functions(tests: str) -> list[str]:
    with open(tests) as file:
        return re.findall(r"^    def (test_\w+)", file.read(), re.MULTILINE)


def function(name: str, known: list[str]) -> str:
    """Without what instances of a parametrized test add."""
    kind, _, test = name.partition(".")
    return kind + "." + max((one for one in known if test.startswith(one)), key=len, default=test)


def main() -> int:
    found, known = results(sys.argv[1]), expectations(sys.argv[2])
    names = functions(sys.argv[3])
    surprises = 0
    count = collections.Counter(verdict for verdict, _ in found.values())
    for name, (verdict, reason) in sorted(found.items()):
        wanted, why = expected_of(name, known)
        if verdict != "passed" or verdict != wanted:
            mark = "" if verdict == wanted else f" UNEXPECTED, {wanted} is expected"
            print(f"{verdict:8}{name}: {why or reason}{mark}")
        surprises += verdict != wanted
    passed = {function(name, names) for name, (verdict, _) in found.items() if verdict == "passed"}
    print(f"{len(passed)} functions have passed, {surprises} tests did not do what is expected")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if surprises or not found else 0


if __name__ == "__main__":
    sys.exit(main())

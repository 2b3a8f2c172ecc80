#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""compare.py [--json FILE] [--bars] < LINES: a table of the results that run.sh has collected, with ratios.

LINES are those of symmem-bench, the MPI programs and bench-limits, each with the number of its round.
"""

import argparse
import json
import statistics
import sys

SIDES = ["symmem", "open_mpi", "mpich", "limit"]
MPIS = SIDES[1:3]
KIB, MIB = 1 << 10, 1 << 20
# The ratios to the better MPI that the project wants to reach: op, ranks, sizes from and to, ratio.
# Never a test: machines differ. 8 ranks: on 2 processors.
BARS = [("barrier", 2, 0, 0, 2)]
for op_on_symmetric_buffers in ("all_reduce_in_place", "all_reduce"):
    BARS += [
        (op_on_symmetric_buffers, 2, KIB, KIB, 2),
        (op_on_symmetric_buffers, 2, 8 * KIB, 512 * KIB, 5),
        (op_on_symmetric_buffers, 2, 4 * MIB, 4 * MIB, 3.5),
        (op_on_symmetric_buffers, 2, 32 * MIB, 32 * MIB, 5),
    ]
BARS += [
    ("all_reduce_copy_out", 2, KIB, 32 * MIB, 1.5),
    ("barrier", 8, 0, 0, 1),
    ("all_reduce_in_place", 8, 8 * KIB, 8 * KIB, 1),
    ("all_reduce", 8, 8 * KIB, 8 * KIB, 1),
]


def spread(values):
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def size_text(nbytes):
    """8 KiB; empty for none."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift} {unit}"
    return f"{nbytes} B" if nbytes else ""


# --- from lines to points: one op at one size ------------------------------------------------------


class Point:
    def __init__(self, op, size, ranks, input_kind):
        self.op, self.bytes, self.ranks, self.input = op, size, ranks, input_kind
        self.us = {side: {} for side in SIDES}  # the median of each round
        self.fastest = {}  # batch of all rounds
        self.limit_us = 0

    def finish(self):
        """The better MPI, and how much longer than ours it takes, round by round. A busy machine leaves
        the fastest batches alone."""
        self.spread = {side: spread(list(times.values())) for side, times in self.us.items()}
        there = [side for side in MPIS if self.spread[side]]
        self.best = min(there, key=lambda side: self.spread[side]["median"], default=None)
        own, other = self.us["symmem"], self.us.get(self.best, {})
        self.ratios = [other[number] / own[number] for number in own if number in other]
        self.ratio = spread(self.ratios)
        fastest = [self.fastest[side] for side in MPIS if side in self.fastest]
        self.fastest_ratio = min(fastest) / self.fastest["symmem"] if fastest and "symmem" in self.fastest else 0


def side_of(library):
    for start, side in (("Open MPI", "open_mpi"), ("MPICH", "mpich")):
        if library.startswith(start):
            return side
    return "limit" if library == "limit" else "symmem"


class Data:
    def __init__(self, lines):
        self.points, self.libraries, self.about, self.rounds = {}, {}, {}, 0
        for line in lines:
            self.take(line)
        for point in self.points.values():
            point.finish()
        for point in self.points.values():
            point.limit_us = self.limit_of(point)

    def take(self, text):
        """Lines that are not results are passed over."""
        try:
            line = json.loads(text)
            key = line["op"], line["bytes"], line["ranks"], line["input"]
            number, median, fastest = line["round"], line["median_us"], line["min_us"]
            side = side_of(line["library"])
        except (ValueError, KeyError, TypeError):
            return
        point = self.points.setdefault(key, Point(*key))
        if median > 0:
            point.us[side][number] = median
        if fastest > 0:
            point.fastest[side] = min(fastest, point.fastest.get(side, fastest))
        self.libraries[side] = line["library"]
        if side == "symmem":
            self.about = {name: line.get(name, "") for name in ("device", "arch", "commit")}
        self.rounds = max(self.rounds, number + 1)

    def limit_at(self, limit, point, size):
        """Limits do not depend on the input's history."""
        for kind in (point.input, "reused"):
            found = self.points.get((limit, size, point.ranks, kind))
            if found and found.spread["limit"]:
                return found.spread["limit"]["median"]
        return 0

    def limit_of(self, point):
        """One hop if ranks synchronize, and one pass over the bytes if there are any."""
        meets = point.op not in ("put", "get", "copy") and point.ranks > 1
        passes = point.bytes > 0 and point.op != "rendezvous"
        hop = self.limit_at("hop", point, 0) if meets else 0
        way = "reduce" if "reduce" in point.op else "memcpy"
        return hop + (self.limit_at(way, point, point.bytes) if passes else 0)


# --- the table ---------------------------------------------------------------------------------------

ROW = "{:>5}  {:<32} {:>8}  {:<28} {:<28} {:<10} {:<22} {:>7}  {}"
BAR_ROW = "{:<28} {:<10} {:>5} {:>8} {:>8}  {:<22} {:>7}  {}"


def spread_text(found, form):
    """Of times four digits that matter, of ratios two behind the point."""
    return form.format(**found) if found else "-"


def time_text(found):
    return spread_text(found, "{median:.4g} [{low:.4g} .. {high:.4g}]")


def ratio_text(found):
    return spread_text(found, "{median:.2f} [{low:.2f} .. {high:.2f}]")


def row_text(data, point):
    name = point.op + (" (rewritten)" if point.input == "rewritten" else "")
    return ROW.format(
        point.ranks,
        name,
        size_text(point.bytes),
        time_text(point.spread["symmem"]),
        time_text(point.spread.get(point.best)),
        data.libraries.get(point.best, ""),
        ratio_text(point.ratio),
        f"{point.fastest_ratio:.2f}" if point.fastest_ratio > 0 else "-",
        f"{point.limit_us:.4g}" if point.limit_us > 0 else "-",
    )


def table(data):
    about = data.about or dict.fromkeys(("device", "arch", "commit"), "")
    points = data.points.values()
    lines = [
        f"{about['device']}, {about['arch']}, commit {about['commit'][:12]}, {data.rounds} alternating rounds",
        "Times in microseconds: median of the rounds' medians [fastest .. slowest round]. ratio:",
        "better MPI to symmem, round by round; fastest: of the fastest batches of all rounds, which other",
        "work on the machine disturbs least. limit: one cache line's way from core to core where",
        "ranks synchronize, and one pass over the bytes where there are any.\n",
        ROW.format("ranks", "op", "size", "symmem", "better MPI", "", "ratio", "fastest", "limit"),
    ]
    lines += [row_text(data, point) for point in points if point.spread["symmem"]]
    lines += ["\nlimits"]
    for point in points:
        if point.spread["limit"]:
            name = f"{point.ranks:>5}  {point.op:<32} {size_text(point.bytes):>8}"
            lines.append(f"{name}  {time_text(point.spread['limit'])}")
    return lines


# --- what is wanted ------------------------------------------------------------------------------------


def measured(data, bar):
    op, ranks, low, high, _ = bar
    points = data.points.values()
    return [p for p in points if (p.op, p.ranks) == (op, ranks) and low <= p.bytes <= high and p.ratio]


def bars_text(data):
    lines = ["\n" + BAR_ROW.format("ratios wanted", "input", "ranks", "size", "wanted", "is", "fastest", "")]
    for bar in BARS:
        op, ranks, _, _, ratio = bar
        wanted, points = f"{ratio:.1f}x", measured(data, bar)
        for point in points:
            is_reached = "reached" if point.ratio["median"] >= ratio else "MISSED"
            fastest = f"{point.fastest_ratio:.2f}"
            size = size_text(point.bytes)
            lines.append(
                BAR_ROW.format(op, point.input, ranks, size, wanted, ratio_text(point.ratio), fastest, is_reached)
            )
        if not points:
            lines.append(BAR_ROW.format(op, "", ranks, "", wanted, "not measured", "", "").rstrip())
    return lines


def place_of(point):
    return {"op": point.op, "bytes": point.bytes, "ranks": point.ranks, "input": point.input}


def bars_of(data):
    return [
        {
            **place_of(point),
            "wanted": bar[4],
            "ratio": point.ratio["median"],
            "fastest_ratio": point.fastest_ratio,
            "reached": point.ratio["median"] >= bar[4],
        }
        for bar in BARS
        for point in measured(data, bar)
    ]


# --- JSON ------------------------------------------------------------------------------------------------


def spread_of(found, count, unit):
    parts = {"median": "median", "min": "low", "max": "high"}
    return {**{name + unit: found[part] for name, part in parts.items()}, "rounds": count}


def result_of(data, point):
    result = place_of(point)
    for side in SIDES:
        if point.spread[side]:
            result[side] = spread_of(point.spread[side], len(point.us[side]), "_us")
    if point.best:
        result["better_mpi"] = data.libraries[point.best]
    if point.ratio:
        result["ratio"] = spread_of(point.ratio, len(point.ratios), "")
    if point.fastest_ratio > 0:
        result["fastest_ratio"] = point.fastest_ratio
    if point.limit_us > 0:
        result["limit_us"] = point.limit_us
    return result


def write_json(data, path):
    whole = {
        **data.about,
        "rounds": data.rounds,
        "libraries": [data.libraries.get(side, "") for side in MPIS],
        "results": [result_of(data, point) for point in data.points.values()],
        "bars": bars_of(data),
    }
    with open(path, "w") as file:
        json.dump(whole, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--bars", action="store_true", help="what is wanted of the ratios, too")
    options = parser.parse_args()
    data = Data(sys.stdin)
    if not data.points:
        print("no results to compare", file=sys.stderr)
        return 1
    try:
        print("\n".join(table(data) + (bars_text(data) if options.bars else [])), flush=True)
        if options.json:
            write_json(data, options.json)
    except OSError as error:
        print(f"the comparison could not be written: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

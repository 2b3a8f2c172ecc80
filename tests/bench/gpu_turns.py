#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpu_turns.py: symmem-bench and PyTorch by turns, on the same GPUs in the same run.

Both programs are started once and then take requests, so that each sleeps while the other measures;
round after round, the first of a round being the other one each time. A table goes to standard
output; --out gets it as table.txt, every measurement as lines.json, and what follows from them as
results.json. Ratios are the other's time to ours, round by round: above 1 ours is faster.
"""

import argparse
import json
import os
import queue
import shlex
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = "1K,4K,16K,64K,256K,1M,4M,16M,64M,256M"
MOVED = "1K,64K,1M,16M,64M"
NCCL = ["nccl_all_reduce", "nccl_symmetric_all_reduce"]
GATHERS = ["nccl_all_gather", "nccl_symmetric_all_gather"]
SCATTERS = ["nccl_reduce_scatter", "nccl_symmetric_reduce_scatter", "reduce_scatter_out"]
# What is compared: ours, what the other has for it, and the one size of those that have no list.
ROWS = [
    ("barrier", ["barrier"], 0),
    ("rendezvous", ["rendezvous"], 4 << 10),
    ("rendezvous_alone", ["rendezvous_alone"], 4 << 10),
    ("one_shot_all_reduce", ["one_shot_all_reduce"], SIZES),
    ("two_shot_all_reduce", ["two_shot_all_reduce"], SIZES),
    ("all_reduce_in_place", NCCL, SIZES),
    ("reduce_scatter", SCATTERS, MOVED),
    ("low_contention_reduce_scatter", SCATTERS, MOVED),
    ("all_gather", GATHERS, MOVED),
    ("all_gather_push", GATHERS, MOVED),
    ("low_contention_all_gather", GATHERS, MOVED),
    ("broadcast", ["nccl_broadcast"], MOVED),
    ("all_to_all", ["nccl_all_to_all"], MOVED),
    ("all_to_all_splits", ["nccl_all_to_all"], MOVED),
]
LAST_SMALL = 1 << 20


def bytes_of(text):
    """4K, 1M, 512."""
    shift = 10 * (" KMG".find(text[-1]))
    return int(text[:-1]) << shift if shift > 0 else int(text)


def sizes_of(text):
    return [bytes_of(size) for size in text.split(",")]


def graph_of(op, nbytes):
    """How many operations a graph has; 0: calls are timed."""
    if op.startswith("rendezvous"):
        return 0
    return 50 if nbytes <= LAST_SMALL else 10


# --- one of the two programs ----------------------------------------------------------------------


class Side:
    """A program that answers requests. Once it has failed it is left alone."""

    def __init__(self, name, command, log):
        self.name, self.failure = name, None
        self.lines = queue.Queue()
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        except OSError as error:
            self.process, self.failure = None, str(error)
            return
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def fail(self, why):
        self.failure = why
        print(f"{self.name}: {why}", file=sys.stderr)

    def ask(self, op, nbytes, graph, patience):
        """The result's line, None if there is none."""
        if self.failure is not None:
            return None
        result, end = None, time.monotonic() + patience
        try:
            self.process.stdin.write(f"{op} {nbytes} {graph}\n")
            self.process.stdin.flush()
            while True:
                text = self.lines.get(timeout=max(end - time.monotonic(), 0.001))
                if text is None:
                    raise OSError("it has ended")
                line = json.loads(text)
                if line.get("done"):
                    return result
                if "error" in line:
                    print(f"{self.name}: {op} of {nbytes} bytes: {line['error']}", file=sys.stderr)
                elif "median_us" in line:
                    result = line
        except (OSError, ValueError) as error:
            self.fail(str(error))
        except queue.Empty:
            self.fail(f"no answer to {op} of {nbytes} bytes in {patience} s")
        return None

    def close(self):
        if self.process is None:
            return
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()  # its ranks end with it
            self.process.wait()


# --- rounds ---------------------------------------------------------------------------------------


class Run:
    def __init__(self, ours, other, sizes, patience):
        self.ours, self.other, self.sizes, self.patience = ours, other, sizes, patience
        self.lines = []
        self.us = {}  # (side, op, bytes) -> median of each round

    def take(self, side, op, nbytes, number):
        line = side.ask(op, nbytes, graph_of(op, nbytes), self.patience)
        if line is None:
            return
        self.lines.append({"round": number, "side": side.name, **line})
        self.us.setdefault((side.name, op, nbytes), {})[number] = line["median_us"]

    def rows(self):
        """Each op, what it is compared with, and a size."""
        for op, others, size in ROWS:
            for nbytes in [size] if isinstance(size, int) else self.sizes or sizes_of(size):
                yield op, others, nbytes

    def turn(self, op, others, nbytes, number):
        jobs = [(self.ours, op)] + [(self.other, other) for other in others]
        if number % 2:
            jobs.reverse()
        for side, name in jobs:
            self.take(side, name, nbytes, number)

    def round(self, number):
        for op, others, nbytes in self.rows():
            self.turn(op, others, nbytes, number)

    def warm_up(self):
        """Both are started by now; afterwards nobody loads anything."""
        for side in (self.ours, self.other):
            side.ask("barrier", 0, 50, 3 * self.patience)


# --- what follows ---------------------------------------------------------------------------------


def spread(values):
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def is_nccl(op):
    return op.startswith("nccl_")


def compare(run):
    results = []
    for op, others, nbytes in run.rows():
        own = run.us.get((run.ours.name, op, nbytes), {})
        theirs = {o: run.us.get((run.other.name, o, nbytes), {}) for o in others}
        there = {o: spread(list(v.values())) for o, v in theirs.items() if v}
        best = min(there, key=lambda o: there[o]["median"], default=None)
        common = [n for n in own if best is not None and n in theirs[best]]
        results.append(
            {
                "op": op,
                "bytes": nbytes,
                "against": " and ".join(
                    name
                    for name, found in (
                        ("PyTorch", [o for o in others if not is_nccl(o)]),
                        ("NCCL", [o for o in others if is_nccl(o)]),
                    )
                    if found
                ),
                "symmem_us": spread(list(own.values())),
                "other_us": there,
                "best": best,
                "ratio": spread([theirs[best][n] / own[n] for n in common]),
            }
        )
    return results


def size_text(nbytes):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes and nbytes % unit == 0:
            return f"{nbytes // unit} {name}"
    return f"{nbytes} B" if nbytes else "-"


def times_text(times):
    return "-" if times is None else f"{times['median']:.2f} [{times['low']:.2f} .. {times['high']:.2f}]"


def table(results):
    lines = [
        f"{'op':<29} {'size':>8}  {'symmem, us':>30}  {'PyTorch, us':>30}  "
        f"{'NCCL, us':>9} {'symmetric':>9}  ratio"
    ]
    for r in results:
        there = r["other_us"]
        nccl = ["", ""]  # as it is, and on a window
        for o in there:
            if is_nccl(o):
                nccl[o.startswith("nccl_symmetric_")] = f"{there[o]['median']:.2f}"
        torch = [there[o] for o in there if not is_nccl(o)]
        own = times_text(r["symmem_us"])
        other = times_text(torch[0]) if torch else ""
        lines.append(
            f"{r['op']:<29} {size_text(r['bytes']):>8}  {own:>30}  {other:>30}  "
            f"{nccl[0]:>9} {nccl[1]:>9}  {times_text(r['ratio'])}"
        )
    for name in ("PyTorch", "NCCL"):
        rows = [r for r in results if name in r["against"]]
        met = [r for r in rows if r["ratio"] is not None and r["ratio"]["median"] >= 1]
        lines.append(f"no slower than {name}: {len(met)} of {len(rows)}")
    return "\n".join(lines) + "\n"


def about_of(run, side):
    keys = ("library", "nccl", "device", "commit", "backend")
    line = next((line for line in run.lines if line["side"] == side.name), {})
    return {key: line[key] for key in keys if key in line}


def write(out, run, rounds, ranks):
    results = compare(run)
    text = table(results)
    with open(os.path.join(out, "lines.json"), "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in run.lines)
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump(
            {
                "ranks": ranks,
                "rounds": rounds,
                "symmem": about_of(run, run.ours),
                "other": about_of(run, run.other),
                "results": results,
            },
            file,
            indent=1,
        )
    with open(os.path.join(out, "table.txt"), "w") as file:
        file.write(text)
    print(text, end="")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="symmem-bench")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--sizes", help=f"of all that has some; default {SIZES}, of other than all-reduces {MOVED}"
    )
    parser.add_argument("--seconds", type=float, default=0.05, help="of measuring, each request")
    parser.add_argument("--limit", type=float, default=150, help="seconds; no round begins that would pass it")
    parser.add_argument("--patience", type=float, default=30, help="seconds for one answer")
    parser.add_argument("--out", required=True, help="a folder that is there")
    parser.add_argument("--peer", help="another command to compare with, in place of peer_torch.py")
    return parser.parse_args()


def main():
    options = parse()
    start = time.monotonic()
    shared = ["--ranks", str(options.ranks), "--seconds", str(options.seconds)]
    bench = [options.bench, "--serve", "--json", "--backend", options.backend]
    bench += ["--dtype", "bfloat16", "--timeout", "3600"] + shared
    peer = [sys.executable, os.path.join(HERE, "peer_torch.py")] + shared
    if options.peer:
        peer = shlex.split(options.peer)
    with open(os.path.join(options.out, "errors.log"), "w") as log:
        sides = Side("symmem", bench, log), Side("other", peer, log)
        run = Run(*sides, options.sizes and sizes_of(options.sizes), options.patience)
        run.warm_up()
        print(f"both started after {time.monotonic() - start:.1f} s", file=sys.stderr)
        done, longest = 0, 0.0
        while done < options.rounds and time.monotonic() - start + longest <= options.limit:
            begun = time.monotonic()
            run.round(done)
            done += 1
            longest = max(longest, time.monotonic() - begun)
            print(f"round {done}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
            if run.ours.failure is not None:
                break
        run.ours.close()
        run.other.close()
    write(options.out, run, done, options.ranks)
    if done < options.rounds:
        print(f"only {done} of {options.rounds} rounds", file=sys.stderr)
    return 0 if done == options.rounds and not run.ours.failure and not run.other.failure else 1


if __name__ == "__main__":
    sys.exit(main())

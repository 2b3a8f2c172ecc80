#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpu_turns.py: symmem-bench, PyTorch with NCCL, and NVSHMEM alternately, on the same GPUs in the same run.

Each program is started once and then takes requests, so that all others sleep while one measures;
round after round, their order being the other way round each time. A table goes to standard
output; --out gets it as table.txt, every measurement as lines.json, and what follows from them as
results.json. Ratios are the others' time to ours, round by round: above 1 ours is faster.
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

from compare import size_text, spread

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = "1K,4K,16K,64K,256K,1M,4M,16M,64M,256M"
MOVED = "1K,64K,1M,16M,64M"
ONE_SHOT = ["one_shot_all_reduce", "nvshmem_all_reduce_out"]
IN_PLACE = ["two_shot_all_reduce", "nccl_all_reduce", "nccl_symmetric_all_reduce", "nvshmem_all_reduce"]
GATHERS = ["nccl_all_gather", "nccl_symmetric_all_gather", "nvshmem_all_gather"]
SCATTERS = ["reduce_scatter_out", "nccl_reduce_scatter", "nccl_symmetric_reduce_scatter", "nvshmem_reduce_scatter"]
BROADCASTS = ["nccl_broadcast", "nvshmem_broadcast", "nvshmem_broadcast_in_place"]
# What is compared: ours, what the others have for them, and their one size or their sizes.
GROUPS = [
    (["barrier"], ["barrier", "nvshmem_barrier", "nvshmem_sync"], 0),
    (["rendezvous"], ["rendezvous"], 4 << 10),
    (["rendezvous_alone"], ["rendezvous_alone"], 4 << 10),
    (["one_shot_all_reduce"], ONE_SHOT, SIZES),
    (["two_shot_all_reduce", "all_reduce_in_place"], IN_PLACE, SIZES),
    (["reduce_scatter", "low_contention_reduce_scatter"], SCATTERS, MOVED),
    (["all_gather", "all_gather_push", "low_contention_all_gather"], GATHERS, MOVED),
    (["broadcast"], BROADCASTS, MOVED),
    (["all_to_all", "all_to_all_splits"], ["nccl_all_to_all", "nvshmem_all_to_all"], MOVED),
    (["all_to_all_v"], ["vdev_all_to_all"], MOVED),
]
LAST_SMALL = 1 << 20
FAR_BEHIND = 8  # times as long as ours: not measured in further rounds
# The libraries, by what their operations' names begin with, and the program that has them.
LIBRARIES = {"PyTorch": ("", "torch"), "NCCL": ("nccl_", "torch"), "NVSHMEM": ("nvshmem_", "nvshmem")}
PEERS = {"torch": "peer_torch.py", "nvshmem": "peer_nvshmem.py", "torch_nvshmem": "peer_torch_nvshmem.py"}
# What starts each of them; only PyTorch's operations on NVSHMEM's memory have a program of their own.
FIRST = {"torch": ("barrier", 0), "nvshmem": ("nvshmem_barrier", 0), "torch_nvshmem": ("vdev_all_to_all", 1 << 10)}
ON_NVSHMEM = "vdev_"
MOST_STARTS = 4  # of a program that ends when it should not


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


# --- one of the programs --------------------------------------------------------------------------


class Side:
    """A program that answers requests. One that ends, or gives no answer, is started again a few times,
    and not asked that again; one that could not start is left alone."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log = name, command, log
        self.failure = None  # why there is nothing more to expect
        self.refused = set()
        self.starts, self.has_answered = 0, False
        self.start()

    def start(self):
        self.starts += 1
        self.lines = queue.Queue()
        try:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
            )
        except OSError as error:
            self.process, self.failure = None, str(error)
            self.say(self.failure)
            return
        threading.Thread(target=self.read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def read(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def say(self, what):
        print(f"{self.name}: {what}", file=sys.stderr)

    def refuse(self, op, nbytes, why):
        if (op, nbytes) not in self.refused:
            self.refused.add((op, nbytes))
            self.say(f"{op} of {nbytes} bytes: {why}")

    def fail(self, op, nbytes, why):
        self.refuse(op, nbytes, why)
        self.end(0)
        if self.has_answered and self.starts < MOST_STARTS:
            self.start()
        else:
            self.failure = why

    def ask(self, op, nbytes, graph, patience):
        """The result's line, None if there is none."""
        if self.failure is not None or (op, nbytes) in self.refused:
            return None
        try:
            self.process.stdin.write(f"{op} {nbytes} {graph}\n")
            self.process.stdin.flush()
            return self.answer(op, nbytes, time.monotonic() + patience)
        except (OSError, ValueError) as error:
            self.fail(op, nbytes, str(error))
        except queue.Empty:
            self.fail(op, nbytes, f"no answer in {patience} s")
        return None

    def answer(self, op, nbytes, end):
        result = None
        while True:
            text = self.lines.get(timeout=max(end - time.monotonic(), 0.001))
            if text is None:
                raise OSError("the program has ended")
            line = json.loads(text)
            if "absent" in line:
                self.failure = line["absent"]
                self.say(f"not compared: {self.failure}")
                return None
            if line.get("done"):
                self.has_answered = True
                return result
            if "error" in line:
                self.refuse(op, nbytes, line["error"])
            elif "median_us" in line:
                result = line

    def end(self, patience):
        if self.process is None:
            return
        try:
            self.process.stdin.close()
            self.process.wait(patience)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()  # its ranks end with it
            self.process.wait()

    def is_whole(self):
        return self.failure is None and not self.refused


# --- rounds ---------------------------------------------------------------------------------------


def library_of(op):
    return next((name for name in ("NCCL", "NVSHMEM") if op.startswith(LIBRARIES[name][0])), "PyTorch")


class Run:
    """`others` are the sides by the names of PEERS."""

    def __init__(self, ours, others, ops, sizes, patience):
        self.ours, self.others, self.patience = ours, others, patience
        self.ops, self.sizes = ops, sizes
        self.lines = []
        self.us = {}  # (side, op, bytes) -> median of each round

    def side_of(self, op):
        """None: it is not to be compared with."""
        name = "torch_nvshmem" if op.startswith(ON_NVSHMEM) else LIBRARIES[library_of(op)][1]
        return self.others.get(name)

    def take(self, side, op, nbytes, number):
        line = side.ask(op, nbytes, graph_of(op, nbytes), self.patience)
        if line is None:
            return
        self.lines.append({"round": number, "side": side.name, **line})
        self.us.setdefault((side.name, op, nbytes), {})[number] = line["median_us"]

    def turns(self):
        """Our ops, what they are compared with, and a size."""
        for owns, others, size in GROUPS:
            owns = [op for op in owns if not self.ops or op in self.ops]
            others = [op for op in others if self.side_of(op) is not None]
            if not owns:
                continue
            for nbytes in [size] if isinstance(size, int) else self.sizes or sizes_of(size):
                yield owns, others, nbytes

    def is_far_behind(self, op, owns, nbytes):
        """Its first round was enough: some take thousands of times as long, and the run with them."""
        own = [us for name in owns for us in self.us.get((self.ours.name, name, nbytes), {}).values()]
        other = self.us.get((self.side_of(op).name, op, nbytes), {}).values()
        return bool(own and other) and min(other) > FAR_BEHIND * max(own)

    def turn(self, owns, others, nbytes, number):
        others = [op for op in others if not self.is_far_behind(op, owns, nbytes)]
        jobs = [(self.ours, op) for op in owns] + [(self.side_of(op), op) for op in others]
        if number % 2:
            jobs.reverse()
        for side, name in jobs:
            self.take(side, name, nbytes, number)

    def round(self, number):
        for owns, others, nbytes in self.turns():
            self.turn(owns, others, nbytes, number)

    def sides(self):
        return [self.ours, *self.others.values()]

    def warm_up(self):
        """All are started by now; afterwards none loads code."""
        self.ours.ask("barrier", 0, 50, 3 * self.patience)
        for name, side in self.others.items():
            side.ask(*FIRST[name], 50, 3 * self.patience)


# --- what follows ---------------------------------------------------------------------------------


def best_of(times):
    """The op whose median is least."""
    return min(times, key=lambda op: statistics.median(times[op].values()), default=None)


def ratio_of(own, other):
    return spread([other[n] / own[n] for n in own if n in other])


def compare(run):
    results = []
    for owns, others, nbytes in run.turns():
        for op in owns:
            own = run.us.get((run.ours.name, op, nbytes), {})
            theirs = {o: run.us.get((run.side_of(o).name, o, nbytes), {}) for o in others}
            theirs = {o: times for o, times in theirs.items() if times}
            names = [name for name in LIBRARIES if any(library_of(o) == name for o in others)]
            best = best_of(theirs)
            against = {}
            for name in names:
                first = best_of({o: t for o, t in theirs.items() if library_of(o) == name})
                against[name] = {"best": first, "ratio": first and ratio_of(own, theirs[first])}
            results.append(
                {
                    "op": op,
                    "bytes": nbytes,
                    "against": " and ".join(names),
                    "symmem_us": spread(list(own.values())),
                    "other_us": {o: spread(list(times.values())) for o, times in theirs.items()},
                    "best": best,
                    "ratio": best and ratio_of(own, theirs[best]),
                    "libraries": against,
                }
            )
    return results


def times_text(times):
    return "-" if times is None else f"{times['median']:.2f} [{times['low']:.2f} .. {times['high']:.2f}]"


def median_text(times):
    return "-" if times is None else f"{times['median']:.2f}"


def row_text(result):
    """NCCL's are as it is, and on a window; of PyTorch and NVSHMEM it is the best."""
    there = result["other_us"]
    columns = []
    for name in ("PyTorch", "NCCL", "symmetric", "NVSHMEM"):
        own = [o for o in there if library_of(o) == name.replace("symmetric", "NCCL")]
        if name in ("NCCL", "symmetric"):
            own = [o for o in own if o.startswith("nccl_symmetric_") == (name == "symmetric")]
        columns.append(min((there[o] for o in own), key=lambda times: times["median"], default=None))
    return (
        f"{result['op']:<29} {size_text(result['bytes']) or '-':>8}  {times_text(result['symmem_us']):>28}  "
        f"{' '.join(f'{median_text(times):>9}' for times in columns)}  {times_text(result['ratio']):<24} "
        f"{result['best'] or ''}"
    ).rstrip()


def table(results):
    lines = [
        f"{'op':<29} {'size':>8}  {'symmem, us':>28}    PyTorch      NCCL symmetric   NVSHMEM  "
        f"{'ratio':<24} to"
    ]
    lines += [row_text(result) for result in results]
    for name in LIBRARIES:
        ratios = [r["libraries"][name]["ratio"] for r in results if name in r["libraries"]]
        met = [ratio for ratio in ratios if ratio is not None and ratio["median"] >= 1]
        if ratios:
            lines.append(f"no slower than {name}: {len(met)} of {len(ratios)}")
    met = [r for r in results if r["ratio"] is not None and r["ratio"]["median"] >= 1]
    lines.append(f"no slower than the best of them: {len(met)} of {len(results)}")
    return "\n".join(lines + bars_text(results)) + "\n"


# --- bars: how much faster than which of the others' operations, in medians -----------------------

REDUCED = ["one_shot_all_reduce", "two_shot_all_reduce"]
BARS = [
    ("barrier", ["barrier"], [0], 1.3),
    ("barrier", ["nvshmem_barrier"], [0], 1.8),
    ("all_to_all_v", ["vdev_all_to_all"], [1 << 10, 64 << 10, 1 << 20], 2.0),
    ("all_to_all_v", ["vdev_all_to_all"], [16 << 20, 64 << 20], 1.0),
]
for own_op in ("one_shot_all_reduce", "all_reduce_in_place"):
    BARS += [
        (own_op, REDUCED, [1 << 10, 4 << 10, 16 << 10, 64 << 10], 2.0),
        (own_op, REDUCED, [256 << 10, 1 << 20], 1.35),
        (own_op, REDUCED, [4 << 20], 1.15),
        (own_op, REDUCED, [16 << 20, 64 << 20, 256 << 20], 1.08),
    ]


def bars_text(results):
    """A line for each bar whose operations were measured."""
    own = {(r["op"], r["bytes"]): r["symmem_us"] for r in results if r["symmem_us"]}
    other = {(o, r["bytes"]): times for r in results for o, times in r["other_us"].items()}
    lines = []
    for op, names, sizes, wanted in BARS:
        for nbytes in sizes:
            times = [other[name, nbytes]["median"] for name in names if (name, nbytes) in other]
            if not times or (op, nbytes) not in own:
                continue
            ratio = min(times) / own[op, nbytes]["median"]
            lines.append(
                f"bar: {op} {size_text(nbytes) or '-'} at least {wanted} x {' or '.join(names)}: "
                f"{ratio:.3f} {'held' if ratio >= wanted else 'MISSED'}"
            )
    return lines


# --- files ----------------------------------------------------------------------------------------


def about_of(run, side):
    keys = ("library", "nccl", "device", "commit", "backend")
    line = next((line for line in run.lines if line["side"] == side.name), {})
    return {key: line[key] for key in keys if key in line}


def write(out, run, rounds, ranks):
    results = compare(run)
    text = table(results)
    others = {name: about_of(run, side) for name, side in run.others.items()}
    with open(os.path.join(out, "lines.json"), "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in run.lines)
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump(
            {
                "ranks": ranks,
                "rounds": rounds,
                "symmem": about_of(run, run.ours),
                "other": others.get("torch", {}),
                "others": others,
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
    parser.add_argument("--limit", type=float, default=400, help="seconds; no round begins that would pass it")
    parser.add_argument("--patience", type=float, default=30, help="seconds for one answer")
    parser.add_argument("--out", required=True, help="a folder that is there")
    parser.add_argument("--ops", help="of ours, with commas between them; default: all")
    parser.add_argument("--peers", default=",".join(PEERS), help="what to compare with; default: %(default)s")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=COMMAND", help="in place of one of --peers"
    )
    options = parser.parse_args()
    known = {op for owns, _, _ in GROUPS for op in owns}
    options.ops = set(options.ops.split(",")) if options.ops else set()
    options.peers = [name for name in options.peers.split(",") if name]
    options.peer = dict(peer.split("=", 1) for peer in options.peer if "=" in peer)
    if options.ops - known or set(options.peers) - set(PEERS) or set(options.peer) - set(PEERS):
        parser.error(f"ops: {', '.join(sorted(known))}; peers: {', '.join(PEERS)}")
    return options


def commands(options):
    """Ours, and the others' by name."""
    shared = ["--ranks", str(options.ranks), "--seconds", str(options.seconds)]
    bench = [options.bench, "--serve", "--json", "--backend", options.backend]
    largest = max(sizes_of(options.sizes or f"{SIZES},{MOVED}"))
    bench += ["--dtype", "bfloat16", "--timeout", "3600", "--bytes", str(largest)] + shared
    peers = {}
    for name in options.peers:
        command = [sys.executable, os.path.join(HERE, PEERS[name])] + shared
        peers[name] = shlex.split(options.peer[name]) if name in options.peer else command
    return bench, peers


def main():
    options = parse()
    start = time.monotonic()
    bench, peers = commands(options)
    with open(os.path.join(options.out, "errors.log"), "w") as log:
        ours = Side("symmem", bench, log)
        others = {name: Side(name, command, log) for name, command in peers.items()}
        sizes = options.sizes and sizes_of(options.sizes)
        run = Run(ours, others, options.ops, sizes, options.patience)
        run.warm_up()
        print(f"all started after {time.monotonic() - start:.1f} s", file=sys.stderr)
        done, longest = 0, 0.0
        while done < options.rounds and time.monotonic() - start + longest <= options.limit:
            begun = time.monotonic()
            run.round(done)
            done += 1
            longest = max(longest, time.monotonic() - begun)
            print(f"round {done}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
            if run.ours.failure is not None:
                break
        for side in run.sides():
            side.end(10)
    write(options.out, run, done, options.ranks)
    if done < options.rounds:
        print(f"only {done} of {options.rounds} rounds", file=sys.stderr)
    return 0 if done == options.rounds and all(side.is_whole() for side in run.sides()) else 1


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpu_fused.py --bench fused-shapes --out FOLDER: fused products at three named shapes, alternately.

symmem, PyTorch's own, NCCL with a plain product, and the least scheme that hides a transfer
(fused_torch.py), eager and captured, on two GPUs in one run. Each program is started once and sleeps
while the other one measures; the order changes from round to round. table.txt and results.json.
Ranks that share a GPU show that all works; those times mean nothing.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
OTHERS = ["torch", "nccl", "scheme"]
# The largest allowed ratio of our time to the other's.
BARS = {"torch": 1.0, "nccl": 1.0, "scheme": 1.03}


class Side:
    """A program with a rank for each GPU. It measures when a line comes."""

    def __init__(self, name, command, environment, log):
        self.name, self.about = name, {}
        self.lines, output = os.pipe()
        self.ranks = []
        for rank in range(RANKS):
            own = dict(environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
            self.ranks.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=log, text=True, env=own)
            )
        os.close(output)
        self.lines = os.fdopen(self.lines)

    def round(self, what):
        """All lines of one round."""
        lines = []
        self.ranks[0].stdin.write(what + "\n")
        self.ranks[0].stdin.flush()
        for text in self.lines:
            if not text.startswith("{"):
                continue
            line = json.loads(text)
            if "done" in line:
                return lines
            if "about" in line:
                self.about = line
            else:
                lines.append({"side": self.name, **line})
        raise RuntimeError(f"{self.name} has ended")

    def end(self):
        for process in self.ranks:
            process.kill()

    def close(self):
        self.ranks[0].stdin.close()
        for process in self.ranks:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def collect(rounds):
    """(op, m, k, n, way) -> side -> the slowest rank's time of each round."""
    rows = {}
    for lines in rounds:
        slowest = {}
        for line in lines:
            if "us" in line:
                key = (line["op"], line["m"], line["k"], line["n"], line["way"]), line["side"]
                slowest[key] = max(slowest.get(key, 0), line["us"])
        for (key, side), us in slowest.items():
            rows.setdefault(key, {}).setdefault(side, []).append(us)
    return rows


def results_of(rows):
    results = []
    for (op, m, k, n, way), sides in rows.items():
        medians = {side: statistics.median(times) for side, times in sides.items()}
        result = {"op": op, "m": m, "k": k, "n": n, "way": way, "us": medians, "rounds": sides}
        own = medians.get("symmem")
        if own is not None:
            result["held"] = {
                other: own <= bar * medians[other] for other, bar in BARS.items() if other in medians
            }
        results.append(result)
    return results


def table_of(results):
    lines = [f"{'op':<28} {'M K N':<18} {'way':<6} {'symmem':>8} " + " ".join(f"{o:>8}" for o in OTHERS) + "  to scheme  bars"]
    for r in results:
        us = r["us"]
        cells = " ".join(f"{us[o]:8.1f}" if o in us else f"{'-':>8}" for o in OTHERS)
        own = us.get("symmem")
        ratio = f"{own / us['scheme']:.3f}" if own and "scheme" in us else "-"
        missed = [o for o, held in r.get("held", {}).items() if not held]
        shape = f"{r['m']} {r['k']} {r['n']}"
        lines.append(
            f"{r['op']:<28} {shape:<18} {r['way']:<6} {own or 0:8.1f} {cells}  {ratio:>9}  "
            + ("held" if not missed else "not: " + ", ".join(missed))
        )
    return "\n".join(lines) + "\n"


def write(out, rounds, symmem, others):
    results = results_of(collect(rounds))
    run = {"ranks": RANKS, "rounds": len(rounds), "symmem": symmem, "others": others, "results": results}
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump({**run, "lines": rounds}, file, indent=1)
    with open(os.path.join(out, "table.txt"), "w") as file:
        file.write(table_of(results))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="fused-shapes")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300, help="seconds after which all is ended")
    options = parser.parse_args()
    environment = dict(os.environ, SYMMEM_BACKEND="cuda", SYMMEM_MULTICAST="0", NCCL_NVLS_ENABLE="0",
                       TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1",
                       TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES="1",
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    with open(os.path.join(options.out, "sides.log"), "w") as log, tempfile.TemporaryDirectory() as store:
        environment["SYMMEM_STORE"] = f"file:{store}/store"
        sides = [
            Side("symmem", [options.bench, str(options.rounds)], environment, log),
            Side("others", [sys.executable, os.path.join(HERE, "fused_torch.py")], environment, log),
        ]
        timer = threading.Timer(options.limit, lambda: [side.end() for side in sides])
        timer.start()
        rounds = []
        try:
            for number in range(options.rounds):
                lines = []
                for side in sides if number % 2 == 0 else sides[::-1]:
                    lines += side.round("round")
                rounds.append(lines)
            write(options.out, rounds, sides[0].about, sides[1].about)
            # Last, because the other program may not be capturable.
            rounds[-1] += sides[1].round("captured")
            write(options.out, rounds, sides[0].about, sides[1].about)
        finally:
            timer.cancel()
            for side in sides:
                side.close()
    with open(os.path.join(options.out, "table.txt")) as file:
        print(file.read(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

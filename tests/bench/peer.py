# SPDX-License-Identifier: BSD-3-Clause
"""What the programs beside symmem-bench share: they take the requests that symmem-bench --serve takes.

Lines of standard input, OP BYTES GRAPH, say what to measure next; a line of JSON with the result and
{"done":true} answer each. GRAPH operations are captured in a graph, which is launched several times
in a row and timed by events between the launches; 0: calls are timed by the host's clock. A sample
is the slowest rank's. Ranks are processes, one for each GPU; while nothing is asked they sleep.

Never with NVLink multicast, on either side.
"""

import os

for variable, value in (
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("NVSHMEM_DISABLE_NVLS", "1"),
    ("SYMMEM_MULTICAST", "0"),
):
    os.environ[variable] = value  # before anything of CUDA is loaded

import argparse
import ctypes
import json
import multiprocessing
import signal
import socket
import statistics
import sys
from multiprocessing import connection

LAUNCHES = 8  # in a row, that count
PR_SET_PDEATHSIG = 1


# --- a rank: what `make` gives has about() and answer(op, nbytes, count) --------------------------


def rank_main(make, rank, ranks, meeting, pipe):
    """Until None comes: a request in, (True, times) or (False, why not) out."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        self = make(rank, ranks, meeting)
        pipe.send((True, self.about()))
    except Exception as error:  # whatever it is, the controller is to know
        pipe.send((False, str(error)))
        return
    while (request := pipe.recv()) is not None:
        try:
            pipe.send((True, self.answer(*request)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))
    # Without the library's own end, which waits for all kinds of things.
    sys.stdout.flush()
    os._exit(0)


# --- the controller -------------------------------------------------------------------------------


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Meeting:
    """By what ranks find each other: a port that is free, and a queue for what the first makes."""

    def __init__(self, context):
        self.port, self.queue = free_port(), context.SimpleQueue()


class World:
    def __init__(self, make, ranks):
        context = multiprocessing.get_context("fork")
        meeting = Meeting(context)
        self.pipes, self.children = [], []
        for rank in range(ranks):
            pipe, end = context.Pipe()
            child = context.Process(
                target=rank_main, args=(make, rank, ranks, meeting, end), daemon=True
            )
            child.start()
            end.close()
            self.pipes.append(pipe)
            self.children.append(child)
        self.about = self.collect(everybody=False)[0]

    def collect(self, everybody=True):
        """What the ranks answer. A failure is raised when all have answered, or else at once."""
        answers, failure = {}, None
        while len(answers) < len(self.pipes):
            for pipe in connection.wait([pipe for pipe in self.pipes if pipe not in answers]):
                try:
                    good, answers[pipe] = pipe.recv()
                except EOFError:
                    raise ConnectionError("a rank has ended") from None
                if not good:
                    failure = RuntimeError(answers[pipe])
            if failure is not None and not everybody:
                break
        if failure is not None:
            raise failure
        return [answers[pipe] for pipe in self.pipes]

    def ask(self, *request):
        """Each sample is the slowest rank's."""
        for pipe in self.pipes:
            pipe.send(request)
        return [max(times) for times in zip(*self.collect())]

    def close(self):
        for pipe in self.pipes:
            pipe.send(None)
        for child in self.children:
            child.join(5)


def measure(world, op, nbytes, count, seconds):
    divisor = max(count, 1)
    world.ask(op, nbytes, count)  # for warming up
    samples = []
    while sum(samples) < seconds * 1e6:
        samples += world.ask(op, nbytes, count)
    samples = [us / divisor for us in samples]
    return {
        "op": op,
        "bytes": nbytes,
        "dtype": "bfloat16",
        "median_us": statistics.median(samples),
        "min_us": min(samples),
        "max_us": max(samples),
        "samples": len(samples),
        "batch": divisor,
        "graph": count,
        "clock": "device" if count > 0 else "host",
    }


def serve(world, ranks, seconds, say):
    for line in sys.stdin:
        words = line.split()
        result = {"op": words[0] if words else "", "ranks": ranks, **world.about}
        try:
            op, nbytes, count = words[0], int(words[1]), int(words[2])
            result.update(measure(world, op, nbytes, count, seconds))
        except OSError:
            raise  # without all ranks there is nothing more to say
        except Exception as error:
            result["error"] = str(error)
        say(result)
        say({"done": True})


def main(make, about, load=None):
    """`load` is called before the ranks are forked; what it raises says that the library is not there."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.05, help="of measuring, each request")
    options = parser.parse_args()
    # Standard output is for answers alone, whatever libraries have to say.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line):
        print(json.dumps(line), file=output, flush=True)

    try:
        if load is not None:
            load()
        world = World(make, options.ranks)
    except (ImportError, OSError, RuntimeError) as error:
        say({"absent": str(error)})
        return 1
    say({"ready": True})
    serve(world, options.ranks, options.seconds, say)
    world.close()
    return 0

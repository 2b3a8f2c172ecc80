# SPDX-License-Identifier: BSD-3-Clause
"""Ranks for tests: processes that are started once for a world size and run one test after the
other.

A test is a function whose body every rank runs. What fails, hangs or ends a rank is the test's
failure, and the next test gets new ranks.
"""

from __future__ import annotations

import datetime
import importlib
import multiprocessing
import multiprocessing.connection
import os
import tempfile
import time
import traceback
from typing import Any

LIMIT_S = 120.0  # of one test; ends what hangs
GRACE_S = 10.0  # of the other ranks, once one has failed
_fork = multiprocessing.get_context("fork")


def _join(rank: int, size: int, directory: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    store = dist.FileStore(os.path.join(directory, "store"), size)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60)
    )


def _serve(rank: int, size: int, directory: str, pipe: Any) -> None:
    _join(rank, size, directory)
    while (job := pipe.recv()) is not None:
        module, name, arguments = job
        try:
            getattr(importlib.import_module(module), name)(**arguments)
            answer: str | None = None
        except BaseException:  # a test's failure, whatever it is
            answer = traceback.format_exc()
        pipe.send(answer)
    os._exit(0)  # no test depends on how a rank ends that has done its work


class Ranks:
    """One world of processes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.directory = tempfile.TemporaryDirectory(prefix="symmem-torch-")
        self.processes = []
        self.pipes = []
        for rank in range(size):
            here, there = _fork.Pipe()
            process = _fork.Process(target=_serve, args=(rank, size, self.directory.name, there))
            process.start()
            there.close()
            self.processes.append(process)
            self.pipes.append(here)

    def run(self, module: str, name: str, arguments: dict[str, Any]) -> list[str | None]:
        """Each rank's traceback, or None where the test passed."""
        for pipe in self.pipes:
            try:
                pipe.send((module, name, arguments))
            except BrokenPipeError:
                pass
        answers: dict[int, str | None] = {}
        end = time.monotonic() + LIMIT_S
        while len(answers) < self.size and time.monotonic() < end:
            waiting = {self.pipes[rank]: rank for rank in range(self.size) if rank not in answers}
            for pipe in multiprocessing.connection.wait(waiting, end - time.monotonic()):
                rank = waiting[pipe]
                answers[rank] = self._answer(rank)
                if answers[rank]:  # the others wait for this one
                    end = min(end, time.monotonic() + GRACE_S)
        return [answers.get(rank, "no answer in time") for rank in range(self.size)]

    def _answer(self, rank: int) -> str | None:
        pipe = self.pipes[rank]
        try:
            return pipe.recv()
        except (EOFError, ConnectionResetError):
            self.processes[rank].join(5)
            return f"the rank ended, status {self.processes[rank].exitcode}"

    def stop(self) -> None:
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except BrokenPipeError:
                pass
        for process in self.processes:
            process.join(5)
            if process.exitcode is None:
                process.kill()
                process.join()
        self.directory.cleanup()

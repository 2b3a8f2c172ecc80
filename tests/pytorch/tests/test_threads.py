# SPDX-License-Identifier: BSD-3-Clause
"""Threads of Python go on while one of them waits for other ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from support import WORLD, meet, rank, size

LATE_S = 0.4


def loops_during(call: Callable[[], Any]) -> int:
    """How often this thread loops while another one is in the call."""
    loops, thread = 0, threading.Thread(target=call)
    thread.start()
    while thread.is_alive():
        loops += 1
        time.sleep(0.01)
    thread.join()
    return loops


def wait_for_others(call: Callable[[], Any], others: Callable[[], Any]) -> None:
    """Rank 0 makes the call, and the others theirs some time later."""
    dist.barrier()
    if rank() == 0:
        assert loops_during(call) > 5
    else:
        time.sleep(LATE_S)
        others()
    dist.barrier()


def test_waits_of_handles():
    _, handle = meet(4)

    def signal() -> None:
        if rank() == 1:
            handle.put_signal(0, 1)

    wait_for_others(lambda: handle.wait_signal(1, 1), signal)
    wait_for_others(handle.barrier, handle.barrier)


def test_rendezvous():
    tensor = symm_mem.empty(4, device="cpu")

    def meet_again() -> None:
        symm_mem.rendezvous(tensor, WORLD)

    wait_for_others(meet_again, meet_again)


def test_threads_meet_in_groups_of_their_own():
    """Each rank begins with another one of them."""
    everyone = list(range(size()))
    groups = [dist.new_group(everyone, timeout=timedelta(seconds=20)) for _ in range(2)]
    tensors = [symm_mem.empty(4, device="cpu") for _ in groups]
    found: list[Any] = [None, None]

    def meet_in(i: int) -> None:
        found[i] = symm_mem.rendezvous(tensors[i], groups[i])

    threads = [threading.Thread(target=meet_in, args=(i,)) for i in range(2)]
    dist.barrier()
    for i in (rank() % 2, 1 - rank() % 2):
        threads[i].start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert all(handle is not None and handle.world_size == size() for handle in found)

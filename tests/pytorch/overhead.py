# SPDX-License-Identifier: BSD-3-Clause
"""overhead.py: what symmem_torch adds to symmem's own calls, between two ranks.

Both are called alternately in one run, and the best rounds are compared: an all-reduce of 1 KiB, and
the allocation, rendezvous and release of 4 KiB. A tensor of a peer's buffer is measured alone. The rounds
take some seconds, because a machine that others use has slow spells of about a second.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch._library

ROUNDS, CALLS = 2000, 100
MEETING_ROUNDS, MEETINGS = 250, 8


class Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    ]


def floats(address: int, count: int) -> Tensor:
    shape = (ctypes.c_int64 * 1)(count)
    kind = (ctypes.c_uint8 * 4)(2, 32, 1, 0)
    return Tensor(address, (ctypes.c_int32 * 2)(0, 0), 1, kind, shape, None, 0)


class Symmem:
    """The C library, called without PyTorch."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(symmem_torch._library.FOLDER / "libsymmem.so"))
        self.context = ctypes.c_void_p()
        self.check(self.library.symmem_init(None, ctypes.byref(self.context)))
        self.group = ctypes.c_void_p()
        group_p = ctypes.byref(self.group)
        self.check(self.library.symmem_group_create(self.context, b"own", None, 0, None, group_p))

    def check(self, status: int) -> None:
        assert status == 0, f"symmem's status {status}"

    def meet(self, size: int) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        memory, handle = ctypes.c_void_p(), ctypes.c_void_p()
        allocate = self.library.symmem_alloc
        self.check(allocate(self.context, ctypes.c_size_t(size), -1, None, ctypes.byref(memory)))
        self.check(
            self.library.symmem_rendezvous(
                self.context, memory, self.group, ctypes.c_uint32(60000), ctypes.byref(handle)
            )
        )
        return memory, handle

    def part(self, memory: ctypes.c_void_p, handle: ctypes.c_void_p) -> None:
        self.library.symmem_handle_release(handle)
        self.check(self.library.symmem_free(self.context, memory))


def timed(work: Callable[[], Any], calls: int) -> float:
    """Microseconds of one call."""
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - begin) / calls * 1e6


def by_turns(rounds: int, calls: int, *works: Callable[[], Any]) -> list[float]:
    found: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for times, work in zip(found, works):
            dist.barrier()
            times.append(timed(work, calls))
    return [min(times) for times in found]


def all_reduces(symmem: Symmem) -> list[float]:
    tensor = symm_mem.empty(256, device="cpu")
    symm_mem.rendezvous(tensor, "0")
    out = torch.empty(256)
    memory, handle = symmem.meet(1024)
    source, target = floats(memory.value or 0, 256), floats(out.data_ptr(), 256)
    own = symmem.library.symmem_one_shot_all_reduce_out
    nothing = symmem.library.symmem_status_name  # what ctypes itself takes
    arguments = (
        handle,
        ctypes.byref(source),
        0,
        ctypes.byref(target),
        0,
        ctypes.c_uint32(60000),
        None,
    )
    symmem.check(own(*arguments))
    torch_us, own_us, ctypes_us = by_turns(
        ROUNDS,
        CALLS,
        lambda: torch.ops.symm_mem.one_shot_all_reduce_out(tensor, "sum", "0", out),
        lambda: own(*arguments),
        lambda: nothing(0, *arguments[1:]),
    )
    return [torch_us, own_us - ctypes_us]


def rendezvous(symmem: Symmem) -> list[float]:
    def by_torch() -> None:
        symm_mem.rendezvous(symm_mem.empty(1024, device="cpu"), "0")

    return by_turns(MEETING_ROUNDS, MEETINGS, by_torch, lambda: symmem.part(*symmem.meet(4096)))


def buffers() -> float:
    tensor = symm_mem.empty(1024, device="cpu")
    handle = symm_mem.rendezvous(tensor, "0")
    return by_turns(ROUNDS, CALLS, lambda: handle.get_buffer(0, (1024,), torch.float32))[0]


def measure(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    os.environ.update(SYMMEM_STORE=f"file:{directory}/own", SYMMEM_BACKEND="shm")
    store = dist.FileStore(f"{directory}/torch", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    symmem = Symmem()
    (reduce_torch, reduce_own), (meet_torch, meet_own) = all_reduces(symmem), rendezvous(symmem)
    buffer_us = buffers()
    if rank == 0:
        print(
            f"one_shot_all_reduce, 1 KiB: {reduce_torch:.2f} us by PyTorch, {reduce_own:.2f} us "
            f"by symmem: {reduce_torch - reduce_own:.2f} us more"
        )
        print(
            f"rendezvous, 4 KiB: {meet_torch:.0f} us by PyTorch, {meet_own:.0f} us by symmem: "
            f"{meet_torch / meet_own:.2f} times"
        )
        print(f"get_buffer: {buffer_us:.2f} us")
    sys.stdout.flush()
    dist.barrier()
    os._exit(0)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        children = []
        for rank in range(2):
            child = os.fork()
            if child == 0:
                measure(rank, directory)
            children.append(child)
        sys.exit(max(os.waitpid(child, 0)[1] for child in children) and 1)


if __name__ == "__main__":
    main()

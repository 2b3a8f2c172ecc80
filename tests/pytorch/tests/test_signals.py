# SPDX-License-Identifier: BSD-3-Clause
"""Data with a signal, and waits for signals and values."""

from __future__ import annotations

import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
import symmem_torch._layer
from support import fails, meet, rank, size

ops = torch.ops.symm_mem
MOST = {32: (1 << 32) - 1, 64: (1 << 64) - 1}


def needs(name: str):
    return pytest.mark.skipif(
        not hasattr(ops, name), reason=f"this version of PyTorch has no {name}"
    )


def around() -> tuple[int, int]:
    """The ranks that this one sends to and hears of."""
    return (rank() + 1) % size(), (rank() - 1) % size()


# --- with data ------------------------------------------------------------------------------------


@needs("nccl_put_with_signal")
def test_nccl_put_with_signal():
    to, source = around()
    tensor, handle = meet((size(), 2048))  # a row is its owner's, here and at the peer
    for value in (1, 2, 7):
        tensor[rank()] = 10 * value + rank()
        ops.nccl_put_with_signal(tensor[rank()], value, to)
        ops.nccl_wait_for_signal(tensor, value)
        assert tensor[source].eq(10 * value + source).all()
        ops.nccl_wait_for_signal(tensor, value - 1)  # a smaller one is there too
        handle.barrier()
    fails("peer must be in", ops.nccl_put_with_signal, tensor, 1, size())
    fails("allocated with", ops.nccl_put_with_signal, torch.ones(4), 1, 0)
    handle.barrier()


@needs("nvshmem_put_with_signal")
def test_nvshmem_put_with_signal():
    to, source = around()
    tensor, handle = meet((size(), 64), dtype=torch.int32)
    sigpad, _ = meet(2, dtype=torch.int64)
    for value in (5, 3, -1):  # it is set, and so may fall
        tensor[rank()] = value + rank()
        ops.nvshmem_put_with_signal(tensor[rank()], sigpad[1:], value, to)
        ops.nvshmem_wait_for_signal(sigpad[1:], value, source)
        assert tensor[source].eq(value + source).all() and sigpad.tolist() == [0, value]
        handle.barrier()
    narrow, _ = meet(1, dtype=torch.int32)
    fails("8 bytes", ops.nvshmem_put_with_signal, tensor, narrow, 1, to)
    fails("peer must be in", ops.nvshmem_wait_for_signal, sigpad, 1, size())
    odd, _ = meet(4, dtype=torch.int32)
    fails("multiple of 8", ops.nvshmem_put_with_signal, tensor, odd[1:], 1, to)
    fails("multiple of 8|MISALIGNED", ops.nvshmem_wait_for_signal, odd[1:], 1, to)
    handle.barrier()


@needs("nccl_put_signal")
def test_signals_of_nccl_are_counted():
    """Each rank puts all of its parts before it waits for those of others."""
    to, source = around()
    tensor, handle = meet(64)
    for turn in range(3):
        for _ in range(5):
            symm_mem.put_signal(torch.full((64,), 10.0 * turn + rank()), handle, to)
        for _ in range(5):
            symm_mem.wait_signal(handle, source)
        assert tensor.eq(10 * turn + source).all()
        handle.barrier()
    boxed = symmem_torch._layer.boxed(handle)
    fails("allocated with|exceed|OUT_OF_RANGE", ops.nccl_put_signal, torch.ones(65), boxed, to)
    fails("contiguous", ops.nccl_put_signal, torch.ones(4, 4).t(), boxed, to)
    fails("CPU tensor|Meta", ops.nccl_put_signal, torch.ones(4, device="meta"), boxed, to)
    handle.barrier()


# --- that do not come -----------------------------------------------------------------------------


@needs("nvshmem_wait_for_signal")
def test_a_signal_of_a_poisoned_peer():
    sigpad, handle = meet(2, dtype=torch.int64)
    words, pad = meet(4, dtype=torch.int64)
    if rank() == 0:
        fails("TIMEOUT.*missing ranks 1", handle.wait_signal, 1, timeout_ms=200)
        fails("POISONED", ops.nvshmem_wait_for_signal, sigpad, 1, 1)
        fails("POISONED", ops.nccl_wait_for_signal, sigpad, 1)
        fails("TIMEOUT", pad.wait_signal, 1, timeout_ms=200)
    elif rank() == 1:
        fails("POISONED.*failed rank 0", ops.nvshmem_wait_for_signal, words, 1, 0)
    dist.barrier()
    symmem_torch.reset(handle)
    symmem_torch.reset(pad)
    handle.barrier()


@pytest.mark.ends
@needs("nvshmem_wait_for_signal")
def test_a_signal_of_a_rank_that_ends():
    sigpad, _ = meet(2, dtype=torch.int64)
    dist.barrier()
    if rank() == 1:
        os._exit(7)
    begin = time.monotonic()
    fails("PEER_LOST.*missing ranks 1", ops.nvshmem_wait_for_signal, sigpad, 1, 1)
    assert time.monotonic() - begin < 30


# --- values ---------------------------------------------------------------------------------------

HOLDS = {
    "eq": lambda word, value: word == value,
    "ne": lambda word, value: word != value,
    "gt": lambda word, value: word > value,
    "ge": lambda word, value: word >= value,
    "lt": lambda word, value: word < value,
    "le": lambda word, value: word <= value,
}


@pytest.mark.parametrize("bits", (32, 64))
@pytest.mark.ranks(1)
def test_comparisons(bits):
    most = MOST[bits]
    words, handle = meet(4, torch.uint32 if bits == 32 else torch.uint64)
    numbers = (0, 1, most // 2, most // 2 + 1, most)
    for word in numbers:
        symmem_torch.write_value(words, 3, word)
        place = {"offset": 3 * bits // 8, "bits": bits, "source": 0}
        for value in numbers:
            for compare in HOLDS:
                wait = lambda: symmem_torch.wait_value(  # noqa: E731
                    handle, value, compare=compare, timeout_ms=20, **place
                )
                if HOLDS[compare](word, value):
                    wait()
                elif value == word:  # the others would take their time
                    assert f"{word}" in fails("TIMEOUT", wait)
                    symmem_torch.reset(handle)
    assert words[:3].view(torch.uint8).eq(0).all()


@pytest.mark.parametrize("bits", (32, 64))
def test_values_order_writes(bits):
    dtype = torch.uint32 if bits == 32 else torch.uint64
    to, source = around()
    tensor, data = meet(256)
    words, handle = meet(2, dtype)
    for turn in range(1, 20):
        data.get_buffer(to, (256,), torch.float32).fill_(100 * turn + rank())
        symmem_torch.write_value(handle.get_buffer(to, (2,), dtype), 1, turn)
        place = {"offset": bits // 8, "bits": bits}
        symmem_torch.wait_value(handle, turn, source=source, **place)
        assert tensor.eq(100 * turn + source).all()
        # What the peer has, where it is.
        symmem_torch.wait_value(handle, turn, source=rank(), rank=to, compare="ge", **place)
        handle.barrier()


@pytest.mark.ranks(1)
def test_other_threads_go_on():
    words, handle = meet(2, torch.uint64)
    sigpad = words.view(torch.int64)
    waits = [
        lambda: symmem_torch.wait_value(handle, 1, source=0, bits=64),
        lambda: symm_mem.wait_signal(handle, 0),
    ]
    if hasattr(ops, "nvshmem_wait_for_signal"):
        waits.append(lambda: ops.nvshmem_wait_for_signal(sigpad, 1, 0))
    for wait in waits:
        words.view(torch.int64).zero_()

        def come() -> None:
            time.sleep(0.05)
            symmem_torch.write_value(words, 0, 1)
            symm_mem.put_signal(torch.ones(0), handle, 0)

        thread = threading.Thread(target=come)
        begin = time.monotonic()
        thread.start()
        wait()
        thread.join()
        assert time.monotonic() - begin < 20


def test_replays():
    to, source = around()
    tensor, handle = meet(8)
    words, values = meet(2, torch.uint64)
    peers = values.get_buffer(to, (2,), torch.uint64)
    own, done = torch.zeros(8), torch.zeros(8)
    with symmem_torch.enable():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            symm_mem.put_signal(own, handle, to)
            symm_mem.wait_signal(handle, source)
            symmem_torch.write_value(peers, 0, 3)
            symmem_torch.wait_value(values, 3, source=source, bits=64)
            done.copy_(tensor)
        assert words[0].item() == 0 and done.eq(0).all()
        for turn in range(1, 4):
            own.fill_(10.0 * turn + rank())
            dist.barrier()
            graph.replay()
            assert words[0].item() == 3 and done.eq(10 * turn + source).all()
    handle.barrier()


def test_numbers_of_values():
    words, handle = meet(4, torch.uint64)
    small, _ = meet(4, torch.uint32)
    wait, write = symmem_torch.wait_value, symmem_torch.write_value
    for value in (-1, 1 << 32, 1 << 64):
        fails("value must be in .*OUT_OF_RANGE", wait, handle, value, source=0)
        fails("value must be in .*OUT_OF_RANGE", write, small, 0, value)
    for value in (-1, 1 << 64, -(1 << 63)):
        fails("value must be in .*OUT_OF_RANGE", wait, handle, value, source=0, bits=64)
        fails("value must be in .*OUT_OF_RANGE", write, words, 0, value)
    for number in (-1, size(), 1 << 32, (1 << 63) - 1, -(1 << 63)):
        fails(r"rank must be in \[0.*OUT_OF_RANGE", wait, handle, 1, source=0, rank=number)
        fails(r"source must be in \[0.*OUT_OF_RANGE", wait, handle, 1, source=number)
    for offset in (-1, -8, 32, (1 << 62), (1 << 63) - 8):
        fails("OUT_OF_RANGE|OVERFLOW", wait, handle, 1, source=0, offset=offset, bits=64)
    for offset in (-1, 4, 1 << 61, (1 << 63) - 1):
        fails("OUT_OF_RANGE", write, words, offset, 1)
        fails("OUT_OF_RANGE", write, small, offset, 1)
    fails("MISALIGNED", wait, handle, 1, source=0, offset=4, bits=64)
    fails("MISALIGNED", wait, handle, 1, source=0, offset=2)
    fails("bits must be 32 or 64", wait, handle, 1, source=0, bits=16)
    fails('compare must be .*got "=="', wait, handle, 1, source=0, compare="==")
    for limit in (-1, (1 << 32) - 1, 1 << 40):
        fails("timeout_ms must be in .*OUT_OF_RANGE", wait, handle, 1, source=0, timeout_ms=limit)
    for tensor in (words.view(2, 2), words[::2], words.view(torch.int64), torch.zeros(4)):
        fails("INVALID_ARGUMENT|contiguous", write, tensor, 0, 1)
    fails("CPU tensor|Meta", write, words.to("meta"), 0, 1)
    assert words.view(torch.int64).eq(0).all() and symmem_torch.status(handle) == "OK"
    handle.barrier()

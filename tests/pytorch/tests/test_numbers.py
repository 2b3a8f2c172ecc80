# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of Python's that no rank, size or time has: refused, never cut off or wrapped around."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
import symmem_torch._layer
from support import WORLD, fails, meet, program, programs, rank, size

ops = torch.ops.symm_mem
RANKS = (-1, -(1 << 32), 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 63) - 1, -(1 << 63))
SIZES = (
    (-1,),
    (2, -2),
    (-2, -2),
    (1 << 62,),
    (1 << 32, 1 << 32),
    (1 << 31, 1 << 31, 4),
    ((1 << 63) - 1,),
)
OFFSETS = (-1, -4, 1 << 61, 1 << 62, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63))


def same_memory(tensor: torch.Tensor, handle) -> None:
    """That nobody wrote."""
    dist.barrier()
    assert tensor.eq(rank()).all()
    handle.barrier()


def test_buffers():
    tensor, handle = meet(16)
    for dtype in (torch.float32, torch.float64, torch.uint8):
        for sizes in SIZES:
            fails("OUT_OF_RANGE", handle.get_buffer, 0, sizes, dtype)
            fails("OUT_OF_RANGE", handle.get_remote_tensor, 0, sizes, dtype)
            fails("OUT_OF_RANGE", handle.get_signal_pad, 0, sizes, dtype)
        for offset in OFFSETS:
            fails("OUT_OF_RANGE", handle.get_buffer, 0, (1,), dtype, offset)
            fails("OUT_OF_RANGE", handle.get_buffer, 0, (0,), dtype, storage_offset=offset)
            fails("OUT_OF_RANGE", handle.get_signal_pad, 0, (1,), dtype, offset)
            fails("OUT_OF_RANGE", handle.get_signal_pad, 0, (), dtype, storage_offset=offset)
    for number in (*RANKS, size()):
        fails(r"rank must be in \[0", handle.get_buffer, number, (1,), torch.float32)
        fails(r"rank must be in \[0", handle.get_remote_tensor, number, (1,), torch.float32)
        fails(r"rank must be in \[0", handle.get_signal_pad, number)
    assert handle.get_buffer(0, (), torch.float32).shape == ()
    assert handle.get_buffer(0, (0, 3), torch.float32, 16).shape == (0, 3)
    assert handle.get_buffer(rank(), [4], torch.int32, 12).data_ptr() == tensor[12:].data_ptr()


def test_dtypes_of_buffers():
    """A tensor of a quantized dtype without a scale would end the process when it is read."""
    _, handle = meet(16)
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    for dtype in dtypes:
        for get in (
            lambda: handle.get_buffer(0, (1,), dtype),
            lambda: handle.get_remote_tensor(0, (1,), dtype),
            lambda: handle.get_signal_pad(0, (1,), dtype),
        ):
            if str(dtype).startswith(("torch.qint", "torch.quint")):
                fails("needs a scale", get)
            else:
                assert get().dtype == dtype
    handle.barrier()


def test_signal_pad_of_another_size():
    """Its bounds are those of the pad that the allocation has."""
    before = symm_mem.get_signal_pad_size()
    _, handle = meet(4)
    words = before // 4
    try:
        symm_mem.set_signal_pad_size(4 * before)
        assert handle.get_signal_pad(rank()).numel() == words
        fails("exceeds the allocated size", handle.get_signal_pad, 0, (words + 1,))
    finally:
        symm_mem.set_signal_pad_size(before)


def test_buffers_of_a_tensor_in_a_larger_block():
    with symmem_torch.use_mem_pool(symm_mem.get_mem_pool("cpu")):
        kept, tensor = torch.ones(4), torch.ones(4)
    handle = symm_mem.rendezvous(tensor, WORLD)
    assert handle.get_remote_tensor(rank(), (4,), torch.float32).eq(1).all()
    left = (handle.buffer_size - handle.offset) // 4
    assert handle.get_remote_tensor(0, (left,), torch.float32).numel() == left
    fails("exceeds the allocated size", handle.get_remote_tensor, 0, (left + 1,), torch.float32)
    dist.barrier()
    del kept


@pytest.mark.parametrize("number", RANKS)
def test_ranks(number):
    tensor, handle = meet(16)
    words, _ = meet(2, dtype=torch.int64)
    tensor.fill_(rank())
    handle.barrier()
    boxed, out, square = symmem_torch._layer.boxed(handle), torch.zeros(4), tensor.view(4, 4)
    range_ = r"must be in \[0"
    fails(range_, ops.nvshmem_broadcast, tensor, number, WORLD)
    fails(range_, ops.multimem_one_shot_reduce_out, tensor, "sum", number, WORLD, out)
    for name in ("nvshmem_put", "nvshmem_get", "nccl_put", "nccl_get"):
        fails(range_, getattr(ops, name), tensor, number)
    for name, arguments in (
        ("nvshmem_get_out", (out, boxed, 0, 4, number)),
        ("nccl_get_out", (out, boxed, 0, 4, number)),
        ("nccl_put_signal", (tensor, boxed, number)),
        ("nccl_wait_signal", (boxed, number)),
        ("nccl_put_with_signal", (tensor, 1, number)),
        ("nvshmem_put_with_signal", (tensor, words, 1, number)),
        ("nvshmem_wait_for_signal", (words, 1, number)),
        ("tile_reduce", (square, square, number, WORLD)),
        ("multi_root_tile_reduce", ([square], square, [number], WORLD)),
        ("nccl_reduce_scatter_offset", (square, [], WORLD, 0, [4], [number])),
    ):
        if hasattr(ops, name):  # not every version has all
            fails(range_, getattr(ops, name), *arguments)
    same_memory(tensor, handle)
    assert out.eq(0).all() and words.eq(0).all()


def test_limits_of_reset():
    _, handle = meet(4)
    for limit in (-1, -5, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1):
        fails("timeout_ms must be in .*OUT_OF_RANGE", symmem_torch.reset, handle, limit)
    symmem_torch.reset(handle, 60000)
    handle.barrier(timeout_ms=(1 << 63))  # longer than any wait


def test_places_that_wrap_around():
    tensor, handle = meet(16)
    tensor.fill_(rank())
    handle.barrier()
    boxed = symmem_torch._layer.boxed(handle)
    out = torch.full((4,), -1.0)
    for name in ("nvshmem_get_out", "nccl_get_out"):
        if not hasattr(ops, name):
            continue
        for offset in (13, 1 << 61, 1 << 62, (1 << 62) + 1, (1 << 63) - 1):
            fails("OUT_OF_RANGE", getattr(ops, name), out, boxed, offset, 4, 0)
        for count in (5, 1 << 62, -1):
            fails("room for size elements", getattr(ops, name), out, boxed, 0, count, 0)
    for offset in (64, 1 << 62, (1 << 63) - 1):
        if hasattr(ops, "memcpy_to_multicast_"):
            fails("OUT_OF_RANGE", ops.memcpy_to_multicast_, tensor, out, offset, WORLD)
    words = tensor.view(torch.uint32)
    for offset in (1 << 62, (1 << 63) - 1):
        fails("exceeded the numel", ops.memset32_, words, offset, 1, 1)
        fails("exceeded the numel", ops.memset32_, words, 0, 1, offset)
        fails("exceeded the numel", ops.stream_write_value32_, words, offset, 1)
    signals = torch.ones(2, dtype=torch.uint32)
    square = out.view(2, 2)
    for pivot in (-1, 1 << 32, 1 << 62):
        fails("pivot|OUT_OF_RANGE", ops._async_input_mm, square, square, signals, pivot)
    assert out.eq(-1).all()
    same_memory(tensor, handle)


@pytest.mark.parametrize("first", (1 << 60, 1 << 61, 1 << 62, (1 << 63) - 1))
def test_splits_that_wrap_around(first):
    tensor, handle = meet((8, 4))
    tensor.fill_(rank())
    splits, met = meet(size(), dtype=torch.int64)
    splits.fill_(first)
    met.barrier()
    out = symm_mem.empty((8, 4), device="cpu").fill_(-1)
    result = symm_mem.empty((2, size()), dtype=torch.int64, device="cpu").fill_(-1)
    larger = "OUT_OF_RANGE"
    fails(larger, ops.all_to_all_vdev, tensor, out, splits, result, WORLD)
    assert out.eq(-1).all() and result.eq(-1).all()
    if hasattr(ops, "all_to_all_vdev_2d"):
        out, _ = meet((8, 4))
        fails(larger, ops.all_to_all_vdev_2d, tensor, out, splits, result, WORLD, None)
        fails(larger, ops.all_to_all_vdev_2d, tensor, out, splits, result, WORLD, 1 << 62)
        assert out.eq(0).all() and result.eq(-1).all()
    same_memory(tensor, handle)


# --- how long -------------------------------------------------------------------------------------

LIMITS = """
    import datetime, faulthandler, sys, tempfile, time, torch, symmem_torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem
    faulthandler.dump_traceback_later(100, exit=True)
    short, long = datetime.timedelta(seconds=1), datetime.timedelta(seconds=600)
    new = sys.argv[1] == "new_group"
    store = dist.FileStore(tempfile.mktemp(), 1)
    store.set_timeout(long)
    dist.init_process_group(
        "gloo", store=store, rank=0, world_size=1, timeout=long if new else short
    )
    group = dist.new_group([0], timeout=short) if new else dist.group.WORLD
    tensor = symm_mem.empty(4, device="cpu")
    handle = symm_mem.rendezvous(tensor, group)
    square, signals = torch.ones(4, 4), torch.zeros(2, dtype=torch.uint32)
    waits = [lambda: handle.wait_signal(0)]
    if not new:
        waits += [
            lambda: torch.ops.symm_mem._async_input_mm(square, square, signals, 0),
            # The first wait has poisoned the handle of the first tensor.
            lambda: torch.ops.symm_mem.nccl_wait_for_signal(symm_mem.empty(4, device="cpu"), 1),
        ]
    for wait in waits:
        begin = time.monotonic()
        try:
            wait()
        except RuntimeError as error:
            assert "TIMEOUT" in str(error), error
        else:
            raise SystemExit("no exception")
        assert time.monotonic() - begin < 25  # less than any other limit
"""


@pytest.mark.here
@pytest.mark.parametrize("group", ("world", "new_group"))
def test_waits_end_after_the_groups_own_limit(group):
    result = program(LIMITS, group)
    assert result.returncode == 0, result.stderr


@pytest.mark.here
def test_peers_own_limit(tmp_path):
    """An explicit store and a group with another limit, by two ranks."""
    results = programs(
        """
        import datetime, faulthandler, sys, torch, symmem_torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        faulthandler.dump_traceback_later(100, exit=True)
        rank = int(sys.argv[1])
        store = dist.FileStore(sys.argv[2], 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        # What the ranks do together takes less, even where they are slow.
        group = dist.new_group(timeout=datetime.timedelta(seconds=15))
        handle = symm_mem.rendezvous(symm_mem.empty(4, device="cpu"), group)
        if rank == 0:
            try:
                handle.barrier()
            except RuntimeError as error:
                assert "TIMEOUT" in str(error) and "missing ranks 1" in str(error), error
            else:
                raise SystemExit("no exception")
        dist.barrier()
        """,
        tmp_path,
    )
    assert [result.returncode for result in results] == [0, 0], [one.stderr for one in results]


# --- how long memory lives ------------------------------------------------------------------------


@pytest.mark.here
def test_buffers_keep_what_they_read(tmp_path):
    results = programs(
        """
        import faulthandler, gc, sys, torch, symmem_torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        faulthandler.enable()
        rank = int(sys.argv[1])
        store = dist.FileStore(sys.argv[2], 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        tensor = symm_mem.empty(1 << 20, device="cpu")
        handle = symm_mem.rendezvous(tensor, "0")
        tensor.fill_(rank + 1)
        handle.get_signal_pad(rank).view(torch.int32).fill_(7)
        handle.barrier()
        peer = 1 - rank
        parts = [
            handle.get_buffer(peer, (1 << 20,), torch.float32)[5:],
            handle.get_buffer(rank, (1 << 10,), torch.float32).view(4, -1)[1],
            handle.get_remote_tensor(peer, (1 << 20,), torch.float32),
            torch.ops.symm_mem.get_remote_tensors(tensor, "0")[peer].view(-1, 2),
        ]
        pad = handle.get_signal_pad(peer, dtype=torch.int32)
        handle.barrier()
        dist.barrier()
        dist.destroy_process_group()
        del tensor, handle
        gc.collect()
        values = [peer + 1, rank + 1, peer + 1, peer + 1]
        assert all(part.eq(value).all() for part, value in zip(parts, values))
        assert pad.eq(7).all()
        store.set(f"seen/{rank}", "")
        store.get(f"seen/{peer}")  # the peer has read, and may be written to
        parts[0].fill_(rank)
        del parts
        gc.collect()
        assert pad.eq(7).all()
        """,
        tmp_path,
    )
    assert [result.returncode for result in results] == [0, 0], [one.stderr for one in results]

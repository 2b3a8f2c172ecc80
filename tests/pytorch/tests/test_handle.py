# SPDX-License-Identifier: BSD-3-Clause
"""Allocation, rendezvous, and each method and attribute of a handle."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory

import symmem_torch
from support import WORLD, fails, is_symmetric, meet, rank, size


def test_attributes():
    tensor, handle = meet(1024)
    assert (handle.rank, handle.world_size, handle.buffer_size, handle.offset) == (
        rank(),
        size(),
        4096,
        0,
    )
    assert handle.buffer_ptrs[rank()] == tensor.data_ptr()
    assert len(set(handle.buffer_ptrs)) == len(set(handle.signal_pad_ptrs)) == size()
    assert handle.buffer_ptrs_dev != 0 and handle.signal_pad_ptrs_dev != 0
    assert handle.signal_pad_size == symm_mem.get_signal_pad_size() > 0
    assert handle.device == tensor.device == torch.device("cpu")
    assert handle.group_name == WORLD
    assert handle.multicast_ptr != 0


def test_new_memory_is_zero():
    assert symm_mem.empty(33, dtype=torch.int64, device="cpu").eq(0).all()


def test_peers_buffers():
    tensor, handle = meet((8, 4), dtype=torch.int32)
    tensor.fill_(rank())
    handle.barrier()
    for peer in range(size()):
        assert handle.get_buffer(peer, (8, 4), torch.int32).eq(peer).all()
        assert handle.get_buffer(peer, (2,), torch.int32, 30).eq(peer).all()
        assert handle.get_remote_tensor(peer, (8, 4), torch.int32).eq(peer).all()
    handle.barrier()
    right = (rank() + 1) % size()
    handle.get_buffer(right, (1,), torch.int32).fill_(100 + rank())
    handle.barrier()
    assert tensor[0, 0] == 100 + (rank() - 1) % size()


def test_buffers_out_of_bounds():
    _, handle = meet(16)
    fails("exceeds the allocated size", handle.get_buffer, 0, (17,), torch.float32)
    fails("exceeds the allocated size", handle.get_buffer, 0, (16,), torch.float32, 1)
    fails(r"rank must be in \[0|rank", handle.get_buffer, size(), (1,), torch.float32)
    fails(r"rank must be in \[0|rank", handle.get_buffer, -1, (1,), torch.float32)


def test_signal_pad():
    tensor, handle = meet(1)
    words = handle.signal_pad_size // 4
    own = handle.get_signal_pad(rank())
    assert own.data_ptr() == handle.signal_pad_ptrs[rank()]
    assert own.dtype == torch.uint32 and own.numel() == words
    assert handle.get_signal_pad(rank(), (8, 8)).shape == (8, 8)
    assert handle.get_signal_pad(rank(), dtype=torch.uint64).numel() == words // 2
    own.fill_(42)
    tensor.fill_(0)
    assert own.view(torch.int32).eq(42).all()
    handle.barrier()
    right = (rank() + 1) % size()
    handle.get_signal_pad(right)[3 * size() + rank()] = 7
    handle.barrier()
    assert own[3 * size() + (rank() - 1) % size()] == 7


def test_operations_leave_the_users_signal_pad_alone():
    tensor, handle = meet(1024)
    own = handle.get_signal_pad(rank())
    own.fill_(1)
    handle.barrier(channel=1)
    handle.put_signal((rank() + 1) % size(), channel=1)
    handle.wait_signal((rank() - 1) % size(), channel=1)
    torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", WORLD)
    assert own.view(torch.int32).eq(1).all()


def test_signals_order_writes():
    tensor, handle = meet(256)
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    for turn in range(20):
        handle.get_buffer(right, (256,), torch.float32).fill_(100 * turn + rank())
        handle.put_signal(right, channel=2)
        handle.wait_signal(left, channel=2)
        assert tensor.eq(100 * turn + left).all()
        handle.barrier(channel=3)


def test_signal_to_oneself():
    _, handle = meet(1)
    handle.put_signal(rank(), channel=1, timeout_ms=1000)
    handle.wait_signal(rank(), channel=1, timeout_ms=1000)


def test_channels_and_ranks_out_of_range():
    _, handle = meet(4)
    last = handle.signal_pad_size // 4 // size() - 1
    handle.barrier(channel=last)
    for call in (
        lambda: handle.barrier(channel=last + 1),
        lambda: handle.barrier(channel=-1),
        lambda: handle.put_signal(0, channel=last + 1),
        lambda: handle.wait_signal(0, channel=last + 1),
    ):
        fails("maximum supported channel", call)
    for peer in (-1, size()):
        fails(r"must be in \[0", handle.put_signal, peer)
        fails(r"must be in \[0", handle.wait_signal, peer)


def test_signal_pad_size():
    before = symm_mem.get_signal_pad_size()
    try:
        symm_mem.set_signal_pad_size(2 * before)
        assert _SymmetricMemory.signal_pad_size == 2 * before
        _, handle = meet(64)
        assert handle.signal_pad_size == 2 * before
        assert handle.get_signal_pad(rank()).numel() == before // 2
        handle.barrier(channel=2 * before // 4 // size() - 1)
    finally:
        symm_mem.set_signal_pad_size(before)


def test_rendezvous_again_is_the_same():
    tensor, handle = meet(64)
    again = symm_mem.rendezvous(tensor, WORLD)
    assert again.buffer_ptrs == handle.buffer_ptrs


def test_default_group():
    tensor = _SymmetricMemory.empty_strided_p2p(
        (4, 4), (4, 1), torch.float32, torch.device("cpu"), WORLD
    )
    handle = _SymmetricMemory.rendezvous(tensor)
    del tensor
    handle.get_buffer(rank(), (16,), torch.float32).fill_(rank())
    handle.barrier()
    assert (
        handle.get_buffer((rank() + 1) % size(), (16,), torch.float32)
        .eq((rank() + 1) % size())
        .all()
    )
    handle.barrier()


def test_persistent_allocation():
    def make():
        return _SymmetricMemory.empty_strided_p2p(
            (64,), (1,), torch.float32, torch.device("cpu"), WORLD, 4711
        )

    tensor = make()
    address = tensor.data_ptr()
    _SymmetricMemory.rendezvous(tensor).barrier()
    fails("alloc_id|persistent", make)
    del tensor
    tensor = make()
    assert tensor.data_ptr() == address
    _SymmetricMemory.rendezvous(tensor).barrier()


def test_subgroups():
    tensor, world = meet(64)
    tensor.fill_(rank())
    groups = [dist.new_group(list(range(first, size(), 2))) for first in range(2)]
    own = groups[rank() % 2]
    handle = symm_mem.rendezvous(tensor, own)
    assert (handle.world_size, handle.rank) == (size() // 2, rank() // 2)
    assert handle.group_name == own.group_name
    world.barrier()
    for peer in range(handle.world_size):
        assert handle.get_buffer(peer, (64,), torch.float32).eq(2 * peer + rank() % 2).all()
    world.barrier()


def test_overlapping_subgroups_after_each_other():
    for members in ([0, 1], [size() - 1, 0], list(reversed(range(size())))):
        members = sorted(set(members))
        group = dist.new_group(members)
        if rank() in members:
            tensor, handle = meet(16, group=group)
            tensor.fill_(rank())
            handle.barrier()
            assert [
                int(handle.get_buffer(peer, (1,), torch.float32)) for peer in range(len(members))
            ] == members
            handle.barrier()
        dist.barrier()


def test_tensors_of_other_memory():
    ordinary = torch.ones(4)
    assert not is_symmetric(ordinary)
    assert symm_mem.rendezvous(ordinary, WORLD) is None
    assert is_symmetric(symm_mem.empty(4, device="cpu"))
    fails(
        "must be allocated with empty_strided_p2p",
        torch.ops.symm_mem.one_shot_all_reduce,
        ordinary,
        "sum",
        WORLD,
    )


def test_backend():
    assert symm_mem.get_backend("cpu") == symm_mem.get_backend(torch.device("cpu")) == "SYMMEM"
    symm_mem.set_backend("SYMMEM")
    assert _SymmetricMemory.has_multicast_support(DeviceType.CPU, 0)
    assert symm_mem.is_symm_mem_enabled_for_group(WORLD)
    assert not symm_mem.is_symm_mem_enabled_for_group("no such group")


def test_enable_for_group_does_no_harm():
    symm_mem.enable_symm_mem_for_group(WORLD)
    meet(4)[1].barrier()


def test_workspace_grows():
    small = symm_mem.get_symm_mem_workspace(WORLD, 128)
    assert small.buffer_size >= 128
    large = symm_mem.get_symm_mem_workspace(WORLD, 1 << 16)
    assert large.buffer_size >= 1 << 16
    assert symm_mem.get_symm_mem_workspace(WORLD, 100).buffer_ptrs == large.buffer_ptrs


def test_handles_by_way_of_operators():
    tensor, _ = meet(16)
    handle = torch.ops.symm_mem._rendezvous(tensor, WORLD)
    torch.ops.symm_mem._barrier(handle)


def test_pool():
    with symmem_torch.use_mem_pool(symm_mem.get_mem_pool("cpu")):
        values = torch.arange(1024, dtype=torch.float32)
        more = torch.ones(3)
    assert is_symmetric(values) and not is_symmetric(torch.ones(3))
    out = torch.ops.symm_mem.one_shot_all_reduce(values, "sum", WORLD)
    assert out.eq(torch.arange(1024) * size()).all()
    handle = symm_mem.rendezvous(more, WORLD)
    assert handle.offset > 0
    more.fill_(rank())
    handle.barrier()
    assert (
        handle.get_remote_tensor((rank() + 1) % size(), (3,), torch.float32)
        .eq((rank() + 1) % size())
        .all()
    )
    handle.barrier()


def test_pool_uses_memory_again():
    pool = symm_mem.get_mem_pool("cpu")
    addresses = []
    for _ in range(2):
        with symmem_torch.use_mem_pool(pool):
            tensor = torch.empty(1024)
        handle = symm_mem.rendezvous(tensor, WORLD)
        handle.barrier(timeout_ms=20000)
        addresses.append(tensor.data_ptr())
        del tensor, handle
    assert addresses[0] == addresses[1]


def test_many_meetings():
    """No rank waits at the store for a key that its peer has just removed."""
    for _ in range(150):
        tensor, handle = meet(4)
        handle.barrier()
        del tensor, handle

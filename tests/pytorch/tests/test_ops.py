# SPDX-License-Identifier: BSD-3-Clause
"""Each operator of torch.ops.symm_mem, against what it means."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch._C._distributed_c10d import _SymmetricMemory

from support import WORLD, fails, inputs, meet, rank, size

ops = torch.ops.symm_mem
DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.uint8,
)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def total(values: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([value.to(torch.float64) for value in values]).sum(0).to(values[0].dtype)


def filled(values: list[torch.Tensor], room: int = 0) -> torch.Tensor:
    """This rank's value in symmetric memory, behind `room` other elements."""
    own = values[rank()]
    tensor, _ = meet(room + own.numel(), dtype=own.dtype)
    part = tensor[room:].view(own.shape)
    part.copy_(own)
    return part


def small(shape, dtype):
    values = inputs(shape, dtype)
    return [value % 8 for value in values] if dtype == torch.uint8 else values


# --- all-reduce -----------------------------------------------------------------------------------


@every_dtype
def test_one_shot_all_reduce(dtype):
    for count, room in ((1, 0), (257, 0), (2048, 16)):
        values = small(count, dtype)
        tensor = filled(values, room)
        out = ops.one_shot_all_reduce(tensor, "sum", WORLD)
        assert out.equal(total(values)) and tensor.equal(values[rank()])
        ops.one_shot_all_reduce_out(tensor, "sum", WORLD, out.zero_())
        assert out.equal(total(values))


def test_one_shot_all_reduce_copy():
    values = inputs((3, 50))
    buffer, _ = meet(1000)
    out = ops.one_shot_all_reduce_copy(buffer[:150].view(3, 50), values[rank()], "sum", WORLD)
    assert out.equal(total(values))
    ops.one_shot_all_reduce_copy_out(buffer, values[rank()], "sum", WORLD, out.zero_())
    assert out.equal(total(values))


@every_dtype
def test_two_shot_all_reduce(dtype):
    for count in (1, 255, 4096):
        values = small(count, dtype)
        tensor = filled(values, 4)
        out = torch.empty_like(tensor)
        ops.two_shot_all_reduce_out(tensor, "sum", WORLD, out)
        assert out.equal(total(values))
        tensor = filled(values, 4)
        assert ops.two_shot_all_reduce_(tensor, "sum", WORLD) is tensor or tensor.equal(
            total(values)
        )
        assert tensor.equal(total(values))


def test_results_have_the_same_bits_everywhere():
    generator = torch.Generator().manual_seed(rank())
    tensor, _ = meet(1000)
    tensor.copy_(torch.rand(1000, generator=generator))
    for out in (
        ops.one_shot_all_reduce(tensor, "sum", WORLD),
        ops.two_shot_all_reduce_(tensor, "sum", WORLD),
    ):
        gathered = [torch.empty_like(out) for _ in range(size())]
        dist.all_gather(gathered, out.contiguous())
        assert all(other.equal(out) for other in gathered)


def test_without_elements():
    tensor, _ = meet(8)
    nothing = tensor[:0]
    assert ops.one_shot_all_reduce(nothing, "sum", WORLD).numel() == 0
    ops.two_shot_all_reduce_(nothing, "sum", WORLD)
    ops.reduce_scatter_out(nothing, WORLD, False, torch.empty(0))


# --- reduce-scatter, gather, broadcast, all-to-all ------------------------------------------------


def test_reduce_scatter_out():
    values = inputs(size() * 64)
    out = torch.empty(64)
    ops.reduce_scatter_out(filled(values), WORLD, False, out)
    assert out.equal(total(values).chunk(size())[rank()])
    values = inputs((5, size() * 8))
    out = torch.empty(5, 8)
    ops.reduce_scatter_out(filled(values), WORLD, True, out)
    assert out.equal(total(values).chunk(size(), dim=1)[rank()])


def test_reduce_scatter_out_refuses_as_pytorch_does():
    tensor, _ = meet(4096, dtype=torch.bfloat16)
    odd = 48 if size() == 4 else 20
    fails(
        "divisible",
        ops.reduce_scatter_out,
        tensor[:odd],
        WORLD,
        False,
        torch.empty(odd // size(), dtype=torch.bfloat16),
    )
    wide = tensor[: 2 * odd].view(2, odd)
    fails(
        "divisible",
        ops.reduce_scatter_out,
        wide,
        WORLD,
        True,
        torch.empty(2, odd // size(), dtype=torch.bfloat16),
    )


@pytest.mark.parametrize("symmetric", (True, False))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float8_e4m3fn, torch.bool), ids=str)
def test_low_contention_all_gather(symmetric, dtype):
    values = [torch.full((16, 4), r).to(dtype) for r in range(size())]
    tensor = filled(values) if symmetric else values[rank()]
    out = torch.ops._c10d_functional.wait_tensor(ops._low_contention_all_gather(tensor, WORLD))
    assert out.view(torch.uint8).equal(torch.cat(values).view(torch.uint8))


@pytest.mark.parametrize("symmetric", (True, False))
@pytest.mark.parametrize("op", ("sum", "avg"))
def test_low_contention_reduce_scatter(symmetric, op):
    values = inputs((size() * 4, 6))
    tensor = filled(values) if symmetric else values[rank()].clone()
    out = torch.ops._c10d_functional.wait_tensor(
        ops._low_contention_reduce_scatter(tensor, op, WORLD)
    )
    expected = total(values).chunk(size())[rank()]
    assert out.equal(expected if op == "sum" else expected / size())


@pytest.mark.parametrize("shape", ((), (8, 4)), ids=str)
def test_low_contention_all_gather_ce_multicast(shape):
    if not hasattr(ops, "_low_contention_all_gather_ce_multicast"):
        return
    own = torch.full(shape, float(rank()))
    expected = torch.cat([torch.full(shape or (1,), float(r)) for r in range(size())])
    assert ops._low_contention_all_gather_ce_multicast(own, WORLD).equal(expected)
    out, _ = meet(expected.shape)
    assert (
        ops._low_contention_all_gather_ce_multicast_out(own, WORLD, out).data_ptr()
        == out.data_ptr()
    )
    assert out.equal(expected)
    fails(
        "expected out shape", ops._low_contention_all_gather_ce_multicast_out, own, WORLD, out[:1]
    )


def test_broadcast():
    for root in range(size()):
        tensor, _ = meet(33, dtype=torch.int16)
        tensor.fill_(rank())
        ops.nvshmem_broadcast(tensor, root, WORLD)
        assert tensor.eq(root).all()


def test_all_to_all():
    tensor, _ = meet(size() * 10)
    tensor.copy_(torch.arange(size()).repeat_interleave(10) + 100 * rank())
    out = torch.empty(size() * 10)
    ops.nvshmem_all_to_all(tensor, out, WORLD)
    assert out.equal((100.0 * torch.arange(size()) + rank()).repeat_interleave(10))


def test_get_remote_tensors():
    tensor, handle = meet((4, 2))
    tensor.fill_(rank())
    handle.barrier()
    assert [int(remote[3, 1]) for remote in ops.get_remote_tensors(tensor, WORLD)] == list(
        range(size())
    )
    handle.barrier()


# --- one-sided ------------------------------------------------------------------------------------


def test_put_and_get():
    tensor, handle = meet(64)
    for put, get in ((ops.nvshmem_put, ops.nvshmem_get), (ops.nccl_put, ops.nccl_get)):
        tensor.fill_(rank())
        handle.barrier()
        if rank() == 0:
            put(tensor[8:16], 1)
        handle.barrier()
        assert tensor[:8].eq(rank()).all() and tensor[8:16].eq(0 if rank() == 1 else rank()).all()
        handle.barrier()
        if rank() == 1:
            get(tensor[16:], 0)
            assert tensor[:8].eq(1).all() and tensor[16:].eq(0).all()
        handle.barrier()


def test_get_of_the_module():
    if not hasattr(symm_mem, "get"):
        return
    tensor, handle = meet(2048)
    tensor.copy_(torch.arange(2048) + 1000 * rank())
    handle.barrier()
    out = torch.full((1024,), -1.0)
    symm_mem.get(out[:1000], handle, 1, offset=512)
    assert out[:1000].equal(torch.arange(512.0, 1512) + 1000) and out[1000:].eq(-1).all()
    fails("contiguous", symm_mem.get, torch.empty(4, 4).t()[:, :2], handle, 1)
    fails("non-negative", symm_mem.get, out, handle, 1, offset=-1)
    fails("exceeds", symm_mem.get, out, handle, 1, offset=2048)
    fails("invalid peer", symm_mem.get, out, handle, size())
    handle.barrier()


def test_put_signal_and_wait_signal_of_the_module():
    tensor, handle = meet(16)
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    symm_mem.put_signal(torch.full((16,), 5.0 + rank()), handle, right)
    symm_mem.wait_signal(handle, left)
    assert tensor.eq(5 + left).all()
    handle.barrier()


# --- words ----------------------------------------------------------------------------------------


def test_words():
    for words in (
        torch.zeros(64, dtype=torch.uint32),
        symm_mem.empty(64, dtype=torch.uint32, device="cpu"),
    ):
        _SymmetricMemory.memset32(words, offset=32, val=1, count=16)
        _SymmetricMemory.stream_write_value32(words, 3, 4000000000)
        values = words.to(torch.int64)
        assert values[32:48].eq(1).all() and values[3] == 4000000000 and values.sum() == 4000000016
    flat = "input must be a flat, contiguous uint32 tensor"
    memset, write = _SymmetricMemory.memset32, _SymmetricMemory.stream_write_value32
    fails(flat, memset, words.view(8, 8), 0, 1, 1)
    fails(flat, memset, words.view(torch.float32), 0, 1, 1)
    fails("offset must be greater than or equal to 0", memset, words, -1, 1, 1)
    fails("val must be in the range of .*uint32_t", memset, words, 0, 1 << 32, 1)
    fails("count must be a positive integer", memset, words, 0, 1, 0)
    fails(r"offset \+ count .* exceeded the numel of the input", memset, words, 63, 1, 2)
    fails("offset must be", write, words, -1, 1)
    fails("val must be", write, words, 0, 1 << 32)
    fails("exceeded the numel", write, words, 64, 1)


# --- multicast ------------------------------------------------------------------------------------


def test_multimem():
    for dtype in (torch.float32, torch.bfloat16):
        values = inputs(2050, dtype)
        tensor = filled(values, 8)
        out = torch.empty(2050, dtype=dtype)
        assert ops.multimem_one_shot_all_reduce(tensor, "sum", WORLD).equal(total(values))
        ops.multimem_one_shot_all_reduce_out(tensor, "sum", WORLD, out)
        assert out.equal(total(values))
        out.zero_()
        ops.multimem_one_shot_reduce_out(tensor, "sum", 1, WORLD, out)
        assert out.equal(total(values) if rank() == 1 else torch.zeros(2050, dtype=dtype))
        ops.multimem_all_reduce_(tensor, "sum", WORLD)
        assert tensor.equal(total(values))


def test_multimem_all_gather():
    values = inputs((3, 5), torch.int64)
    out, handle = meet((3 * size(), 5), dtype=torch.int64)
    ops.multimem_all_gather_out(values[rank()], WORLD, out)
    assert out.equal(torch.cat(values))
    handle.barrier()
    if not hasattr(ops, "memcpy_to_multicast_"):
        return
    ops.memcpy_to_multicast_(out, torch.full((15,), rank()), rank() * 15 * 8, WORLD)
    handle.barrier()
    assert out.view(size(), 15).equal(torch.arange(size()).repeat_interleave(15).view(size(), 15))


# --- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", (0, 1, 2))
def test_fused_all_gather_matmul(dim):
    shape = [4, 8, 16]
    whole = torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(1)).float()
    shard = whole.chunk(size(), dim)[rank()].contiguous()
    factors = [torch.eye(16)[:, :n] * 2 for n in (16, 4)]
    gathered, outs = ops.fused_all_gather_matmul(shard, factors, dim, WORLD)
    assert gathered.equal(whole)
    assert all(out.equal(whole @ factor) for out, factor in zip(outs, factors))


@pytest.mark.parametrize("op", ("sum", "avg"))
@pytest.mark.parametrize("dim", (0, 1, 2))
def test_fused_matmul_reduce_scatter(dim, op):
    values = inputs((4, 8, 16))
    factor = torch.eye(16)
    out = ops.fused_matmul_reduce_scatter(values[rank()], factor, op, dim, WORLD)
    expected = total(values).chunk(size(), dim)[rank()]
    assert out.equal(expected if op == "sum" else expected / size())

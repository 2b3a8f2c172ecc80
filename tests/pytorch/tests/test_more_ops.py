# SPDX-License-Identifier: BSD-3-Clause
"""Operators of PyTorch's NCCL backend on blocks, and a product whose input arrives in chunks."""

from __future__ import annotations

import threading
import time

import pytest
import torch
import torch.distributed._symmetric_memory as symm_mem

from support import WORLD, fails, inputs, meet, rank, size

ops = torch.ops.symm_mem


def needs(name: str):
    return pytest.mark.skipif(
        not hasattr(ops, name), reason=f"this version of PyTorch has no {name}"
    )


# --- a product whose input arrives ----------------------------------------------------------------


def test_async_input_mm():
    chunks, rows = 4, 32
    values, other = inputs((rows, 24))[rank()], inputs((24, 16))[0]
    a = torch.zeros(rows, 24)
    signals = torch.zeros(chunks, dtype=torch.uint32)

    def arrive() -> None:
        for chunk in (2, 3, 0, 1):
            part = slice(chunk * rows // chunks, (chunk + 1) * rows // chunks)
            a[part] = values[part]
            ops.stream_write_value32_(signals, chunk, 1)
            time.sleep(0.01)

    thread = threading.Thread(target=arrive)
    thread.start()
    out = ops._async_input_mm(a, other, signals, 2)
    thread.join()
    assert out.equal(values @ other)
    turned = ops._async_input_mm(a, other.t().contiguous().t(), signals, 0)
    assert turned.equal(values @ other)
    fails("multiplied", ops._async_input_mm, a, other.t(), signals, 0)
    fails("flat uint32", ops._async_input_mm, a, other, torch.zeros(4), 0)
    fails("OUT_OF_RANGE|INVALID_ARGUMENT", ops._async_input_mm, a, other, signals, chunks)


# --- blocks --------------------------------------------------------------------------------------


@needs("nccl_reduce_scatter_offset")
@pytest.mark.parametrize("dim", (0, 1))
def test_reduce_scatter_offset(dim):
    values = inputs((4 * size(), 6 * size()), torch.int32)
    tensor, _ = meet((4 * size(), 6 * size()), dtype=torch.int32)
    tensor.copy_(values[rank()])
    expected = torch.stack(values).sum(0).to(torch.int32)
    plain = expected.chunk(size(), dim)[rank()]
    out = [torch.zeros(plain.shape, dtype=torch.int32)]
    symm_mem.reduce_scatter_offset(tensor, out, WORLD, dim=dim)
    assert out[0].equal(plain)
    offsets = [1, 3] if rank() >= 0 else []
    last = size() - 1
    blocks = [expected.narrow(dim, 0, 1), expected.narrow(dim, 1, 2)]
    out = [torch.zeros(block.shape, dtype=torch.int32) for block in blocks if rank() == last]
    ops.nccl_reduce_scatter_offset(tensor, out, WORLD, dim, offsets, [last, last])
    assert all(one.equal(block) for one, block in zip(out, blocks))
    fails("a tensor of its shape", ops.nccl_reduce_scatter_offset, tensor, [], WORLD, dim)
    fails("must rise", ops.nccl_reduce_scatter_offset, tensor, [], WORLD, dim, [2, 1], [0, 0])
    for wrong, text in (
        (torch.zeros((*plain.shape, 2), dtype=torch.int32)[..., 0], "contiguous"),
        (torch.zeros(plain.shape), "dtype"),
        (tensor.view(-1)[: plain.numel()].view(plain.shape), "out overlaps input"),
    ):
        fails(text, ops.nccl_reduce_scatter_offset, tensor, [wrong], WORLD, dim)
    assert tensor.equal(values[rank()])


@needs("nccl_reduce_scatter_offset")
def test_blocks_of_many_ranks_in_any_order():
    """Ranks have different numbers of blocks, in an input whose rows lie apart."""
    rows, columns = 3, 2 * size() + 3
    values = inputs((rows, columns + 4))
    tensor, _ = meet((rows, columns + 4))
    tensor.copy_(values[rank()])
    total = torch.stack(values).sum(0)[:, 2 : columns + 2]
    lengths = [1, 2, *[2] * (size() - 1), 0, 2]
    dst = [size() - 1, 0, *range(size() - 1), 1, size() - 1]
    ends = torch.tensor(lengths).cumsum(0).tolist()
    mine = [
        total[:, end - length : end]
        for end, length, owner in zip(ends, lengths, dst)
        if owner == rank()
    ]
    out = [torch.zeros(block.shape) for block in mine]
    ops.nccl_reduce_scatter_offset(
        tensor[:, 2 : columns + 2], out, WORLD, 1, offsets=ends, dst_ranks=dst
    )
    assert all(one.equal(block) for one, block in zip(out, mine))


@needs("nccl_all_to_all_nd")
@pytest.mark.parametrize("flat", (True, False))
def test_all_to_all_nd(flat):
    rows, columns = 3, 5
    values = inputs((rows, size(), columns))
    tensor, _ = meet((rows, size() * columns) if flat else (rows, size(), columns))
    tensor.copy_(values[rank()].view(tensor.shape))
    out = torch.zeros((size() * rows, columns) if flat else (size(), rows, columns))
    symm_mem.all_to_all_nd(tensor, out, 1, 0, group=WORLD)
    assert out.view(size(), rows, columns).equal(
        torch.stack([value[:, rank()] for value in values])
    )
    values = inputs((size(), rows, columns))
    tensor, _ = meet((size() * rows, columns) if flat else (size(), rows, columns))
    tensor.copy_(values[rank()].view(tensor.shape))
    out = torch.zeros((rows, size() * columns) if flat else (rows, size(), columns))
    symm_mem.all_to_all_nd(tensor, out, 0, 1, group=WORLD)
    expected = torch.stack([value[rank()] for value in values], 1)
    assert out.view(rows, size(), columns).equal(expected)
    fails("must be 0 and 1", ops.nccl_all_to_all_nd, tensor, out, 0, 0, WORLD)

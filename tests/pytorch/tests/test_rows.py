# SPDX-License-Identifier: BSD-3-Clause
"""All-to-alls of rows whose splits lie in tensors."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
from support import WORLD, fails, meet, rank, size

ops = torch.ops.symm_mem
needs_2d = pytest.mark.skipif(
    not hasattr(ops, "all_to_all_vdev_2d"), reason="this version of PyTorch has no such operator"
)


def numbers(values: torch.Tensor) -> torch.Tensor:
    """As splits, in symmetric memory."""
    tensor = symm_mem.empty(values.shape, dtype=torch.int64, device="cpu")
    return tensor.copy_(values)


def places(parts: int) -> torch.Tensor:
    return numbers(torch.full((2, parts), -1))


# --- by ranks -------------------------------------------------------------------------------------


def sent_by(source: int) -> torch.Tensor:
    return torch.tensor([(3 * source + peer) % 5 for peer in range(size())])


def rows_of(source: int, shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """What it has for each rank: rows that say whose they are."""
    return [
        torch.full((int(count), *shape), 1.0 + (5 * source + peer) % 7).to(dtype)
        for peer, count in enumerate(sent_by(source))
    ]


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor


@pytest.mark.parametrize("shape", ((), (2,), (3, 5)), ids=str)
@pytest.mark.parametrize(
    "dtype",
    (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64),
    ids=str,
)
def test_by_ranks(dtype, shape):
    received = torch.tensor([sent_by(peer)[rank()] for peer in range(size())])
    tensor, _ = meet((5 * size(), *shape), dtype)
    own = torch.cat(rows_of(rank(), shape, dtype))
    tensor[: len(own)] = own
    out = symm_mem.empty((7 * size(), *shape), dtype=dtype, device="cpu")
    result = places(size())
    ops.all_to_all_vdev(tensor, out, numbers(sent_by(rank())), result, WORLD)
    assert result[0].equal(received) and result[1].equal(received.cumsum(0) - received)
    expected = torch.cat([rows_of(peer, shape, dtype)[rank()] for peer in range(size())])
    assert as_bytes(out[: len(expected)]).equal(as_bytes(expected))
    assert as_bytes(out[len(expected) :]).eq(0).all()


def test_of_a_part_of_a_tensor_in_a_group():
    group = dist.new_group(list(range(size())))
    tensor = symm_mem.empty((8, 4), device="cpu")
    tensor[2:] = float(rank())
    result = places(size())
    splits = numbers(torch.full((2, size()), 1))
    out = symm_mem.empty((size() + 3, 4), device="cpu")
    ops.all_to_all_vdev(tensor[2:], out[1:], splits[1], result, group.group_name)
    assert out[:, 3].tolist() == [0, *range(size()), 0, 0]
    assert result.tolist() == [[1] * size(), list(range(size()))]


def test_without_rows():
    tensor, _ = meet((0, 4))
    out, _ = meet((0, 4))
    result = places(size())
    ops.all_to_all_vdev(tensor, out, numbers(torch.zeros(size())), result, WORLD)
    assert result.eq(0).all()


# --- by experts, and back -------------------------------------------------------------------------


def sections(splits: list[list[int]], owner: int, experts: int) -> list[list[torch.Tensor]]:
    """What each rank has for each expert of the owner: rows that say whose they are."""
    return [
        [
            torch.full((splits[source][owner * experts + expert], 3), source * 100.0 + expert)
            for expert in range(experts)
        ]
        for source in range(size())
    ]


@needs_2d
@pytest.mark.parametrize("align", (None, 1, 4))
def test_by_experts_and_back(align):
    experts, room = 2, 64
    splits = [
        [(source + 2 * part) % 4 for part in range(size() * experts)] for source in range(size())
    ]
    tensor, _ = meet((room, 3))
    out, _ = meet((room, 3))
    mine = [sections(splits, owner, experts)[rank()] for owner in range(size())]
    rows = torch.cat([part for parts in mine for part in parts])
    tensor[: len(rows)] = rows
    result = places(size() * experts)
    ops.all_to_all_vdev_2d(
        tensor, out, numbers(torch.tensor(splits[rank()])), result, WORLD, major_align=align
    )
    expected = sections(splits, rank(), experts)
    for index, (length, begin) in enumerate(result.t().tolist()):
        expert, source = divmod(index, size())
        assert out[begin : begin + length].equal(expected[source][expert])
        assert source > 0 or begin % (align or 1) == 0
    back, _ = meet((room, 3))
    back_result = places(size() * experts)
    ops.all_to_all_vdev_2d_offset(out, back, result, back_result, WORLD)
    assert back[: len(rows)].equal(rows)
    assert back_result[0].tolist() == splits[rank()]


@needs_2d
def test_splits_change_between_replays():
    """What a graph has captured takes the splits that there are when it is launched."""
    tensor, _ = meet((4 * size(), 2))
    out, _ = meet((4 * size(), 2))
    splits, result = numbers(torch.zeros(size())), places(size())
    tensor.fill_(float(rank()))
    with symmem_torch.enable():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ops.all_to_all_vdev_2d(tensor, out, splits, result, WORLD)
        assert result.eq(-1).all()
        for length in (2, 0, 4):
            splits.fill_(length)
            graph.replay()
            assert result[0].eq(length).all()
            assert out[: length * size(), 0].tolist() == [
                float(peer) for peer in range(size()) for _ in range(length)
            ]


# --- what is wrong --------------------------------------------------------------------------------


def every_form(tensor, out, splits, offsets, result):
    """Each operator, with these splits."""
    yield lambda: ops.all_to_all_vdev(tensor, out, splits, result, WORLD)
    if hasattr(ops, "all_to_all_vdev_2d"):
        yield lambda: ops.all_to_all_vdev_2d(tensor, out, splits, result, WORLD, None)
        both = numbers(torch.stack([splits, offsets]))
        yield lambda: ops.all_to_all_vdev_2d_offset(tensor, out, both, result, WORLD)


@pytest.mark.parametrize("culprit", ("rank 0", "the last rank", "all ranks"))
@pytest.mark.parametrize(
    "first, what",
    (
        (-1, "INVALID_ARGUMENT"),
        (9, "OUT_OF_RANGE"),
        (1 << 60, "OUT_OF_RANGE"),
        ((1 << 63) - 1, "OUT_OF_RANGE"),
        (-(1 << 63), "INVALID_ARGUMENT"),
    ),
)
def test_wrong_splits_of_one_rank_are_every_ranks_failure(first, what, culprit):
    all_ranks = list(range(size()))
    wrong = {"rank 0": [0], "the last rank": [size() - 1], "all ranks": all_ranks}[culprit]
    tensor, handle = meet((8, 2))
    out, result = symm_mem.empty((8 * size(), 2), device="cpu"), places(size())
    splits = torch.ones(size(), dtype=torch.int64)
    if rank() in wrong:
        splits[0] = first
    offsets = torch.arange(size())
    for form in every_form(tensor, out, numbers(splits), offsets, result):
        # With offsets a part that is too long also ends behind where the next one begins.
        text = fails(rf"symmem all_to_all_v.*\[{what}, stage in_(splits|offsets)", form)
        assert f"failed rank {wrong[0]}" in text
        assert out.eq(0).all() and result.eq(-1).all()
        assert symmem_torch.status(handle) == "OK"
    good = numbers(torch.ones(size()))
    for form in every_form(tensor, out, good, offsets, result):
        form()


def test_rows_that_do_not_fit_in_the_out_of_one_rank():
    tensor, handle = meet((2 * size(), 2))
    out = symm_mem.empty((2 * size(), 2), device="cpu")
    short = out[: size()] if rank() == 1 else out
    result = places(size())
    splits, offsets = numbers(torch.full((size(),), 2)), 2 * torch.arange(size())
    for form in every_form(tensor, short, splits, offsets, result):
        fails("OUT_OF_RANGE, stage out", form)
        assert out.eq(0).all() and result.eq(-1).all()
    handle.barrier()


@needs_2d
@pytest.mark.parametrize("offset", (-1, 7, 9, 1 << 62, -(1 << 63)))
def test_wrong_offsets(offset):
    tensor, handle = meet((8, 2))
    out, result = symm_mem.empty((8 * size(), 2), device="cpu"), places(size())
    both = numbers(torch.stack([torch.full((size(),), 2), 2 * torch.arange(size())]))
    both[1, size() - 1] = offset
    fails(
        "(INVALID_ARGUMENT|OUT_OF_RANGE), stage in_(offsets|splits)",
        *(ops.all_to_all_vdev_2d_offset, tensor, out, both, result, WORLD),
    )
    assert out.eq(0).all() and result.eq(-1).all()
    handle.barrier()


def good_arguments():
    tensor, _ = meet((8, 2))
    out = symm_mem.empty((8 * size(), 2), device="cpu")
    return [tensor, out, numbers(torch.ones(size())), places(size())]


@pytest.mark.parametrize("name", ("all_to_all_vdev", "all_to_all_vdev_2d"))
def test_arguments_that_do_not_fit(name):
    if not hasattr(ops, name):
        return
    operator, good = getattr(ops, name), good_arguments()
    tensor, out, splits, result = good
    odd = symm_mem.empty(2 * size() + 1, dtype=torch.int64, device="cpu")
    for place, argument, text in (
        (2, splits.to(torch.int32), "splits"),
        (2, symm_mem.empty(size(), dtype=torch.int32, device="cpu"), "in_splits is not int64"),
        (2, symm_mem.empty(size(), dtype=torch.float64, device="cpu"), "in_splits is not int64"),
        (2, symm_mem.empty(size(), dtype=torch.uint64, device="cpu"), "in_splits is not int64"),
        (3, symm_mem.empty((2, size()), device="cpu"), "out_splits_offsets is not int64"),
        (2, odd, "INVALID_ARGUMENT"),
        (2, odd[: size() - 1], "INVALID_ARGUMENT"),
        (2, symm_mem.empty((1, size()), dtype=torch.int64, device="cpu"), "INVALID_ARGUMENT"),
        (3, result[0], "INVALID_ARGUMENT"),
        (3, places(size() + 1), "INVALID_ARGUMENT"),
        (1, out.view(torch.int32), "dtype"),
        (1, symm_mem.empty((8 * size(), 3), device="cpu"), "a row of out has 3 elements"),
        (1, tensor, "INVALID_ARGUMENT"),
        (3, numbers(torch.zeros(3, size()))[:2].t().contiguous().t(), "contiguous"),
        (1, out.t(), "contiguous"),
        (0, tensor.t(), "contiguous"),
        (0, symm_mem.empty((), device="cpu"), "has no rows"),
    ):
        arguments = [*good]
        arguments[place] = argument
        fails(text, operator, *arguments, WORLD)
    for place in range(4):
        arguments = [*good]
        arguments[place] = arguments[place].clone()
        fails("symmetric memory|allocated with", operator, *arguments, WORLD)
        if name == "all_to_all_vdev":  # PyTorch has another one for tensors without data
            arguments[place] = good[place].to("meta")
            fails("CPU tensor|Meta", operator, *arguments, WORLD)
    fails("no process group", operator, *good, "nowhere")
    assert out.eq(0).all() and result.eq(-1).all()
    operator(*good, WORLD)


@needs_2d
def test_alignments():
    tensor, out, splits, result = good_arguments()
    for align in (0, -1, -(1 << 63)):
        fails(
            "symmem all_to_all_v_2d: major_align is less than 1",
            *(ops.all_to_all_vdev_2d, tensor, out, splits, result, WORLD, align),
        )
    ops.all_to_all_vdev_2d(tensor, out, splits, result, WORLD, (1 << 63) - 1)
    two = symm_mem.empty(2 * size(), dtype=torch.int64, device="cpu")
    for align in (1 << 62, (1 << 63) - 1):
        fails(
            "OVERFLOW|OUT_OF_RANGE",
            *(ops.all_to_all_vdev_2d, tensor, out, two, places(2 * size()), WORLD, align),
        )
    ops.all_to_all_vdev_2d(tensor, out, splits, result, WORLD)

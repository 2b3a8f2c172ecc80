# SPDX-License-Identifier: BSD-3-Clause
"""Reductions of matrices that are cut from larger ones."""

from __future__ import annotations

import datetime
import os
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
from support import WORLD, fails, inputs, meet, programs, rank, size

ops = torch.ops.symm_mem
pytestmark = pytest.mark.skipif(
    not hasattr(ops, "tile_reduce"), reason="this version of PyTorch has no tiles"
)
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
)


def filled(values: list[torch.Tensor]) -> torch.Tensor:
    """A symmetric tensor with this rank's values."""
    tensor, handle = meet(tuple(values[0].shape), values[0].dtype)
    tensor.copy_(values[rank()])
    handle.barrier()
    return tensor


def sums_of(tensor: torch.Tensor) -> torch.Tensor:
    """With the bits of an all-reduce."""
    return ops.one_shot_all_reduce(tensor, "sum", WORLD)


def random_values(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """What each rank has: numbers whose sums depend on the order."""
    generator = torch.Generator().manual_seed(7)
    values = [torch.randn(shape, generator=generator) * 50 for _ in range(size())]
    return [value.to(dtype) for value in values]


# --- one root -------------------------------------------------------------------------------------


def test_each_root():
    values = inputs((8, 12))
    tensor = filled(values)
    for root in range(size()):
        out, _ = meet((8, 12))
        ops.tile_reduce(tensor[2:5, 4:8], out[2:5, 4:8], root, WORLD)
        expected = torch.zeros(8, 12)
        if rank() == root:
            expected[2:5, 4:8] = torch.stack(values).sum(0)[2:5, 4:8]
        assert out.equal(expected)
    assert tensor.equal(values[rank()])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_of_an_all_reduce(dtype):
    tensor = filled(random_values((9, 130), dtype))
    expected = sums_of(tensor)
    out, _ = meet((9, 130), dtype)
    for rows, columns in ((slice(0, 9), slice(0, 130)), (slice(1, 8), slice(3, 128))):
        out.zero_()
        ops.tile_reduce(tensor[rows, columns], out[rows, columns], 1, WORLD)
        if rank() == 1:
            assert out[rows, columns].equal(expected[rows, columns])
            expected_rest = torch.zeros_like(out)
            expected_rest[rows, columns] = expected[rows, columns]
            assert out.equal(expected_rest)
        else:
            assert out.eq(0).all()


def test_columns():
    """A matrix of which the elements of a column follow each other."""
    values = inputs((6, 5))
    tensor = filled(values)
    out, _ = meet((6, 5))
    ops.tile_reduce(tensor.t()[1:4], out.t()[1:4], 0, WORLD)
    expected = torch.zeros(6, 5)
    if rank() == 0:
        expected[:, 1:4] = torch.stack(values).sum(0)[:, 1:4]
    assert out.equal(expected)


def test_in_place_and_between_the_rows():
    values = inputs((4, 6))
    tensor = filled(values)
    ops.tile_reduce(tensor[:, 1:3], tensor[:, 4:6], 0, WORLD)
    ops.tile_reduce(tensor[:, :3], tensor[:, :3], 1, WORLD)
    total = torch.stack(values).sum(0)
    expected = values[rank()].clone()
    if rank() == 0:
        expected[:, 4:6] = total[:, 1:3]
    if rank() == 1:
        expected[:, :3] = total[:, :3]
    assert tensor.equal(expected)


@pytest.mark.parametrize("shape", ((0, 3), (3, 0), (1, 1), (1, 5), (5, 1)), ids=str)
def test_small_tiles(shape):
    values = inputs((8, 8))
    tensor = filled(values)
    out, _ = meet((8, 8))
    rows, columns = shape
    ops.tile_reduce(tensor[2 : 2 + rows, 1 : 1 + columns], out[:rows, :columns], 1, WORLD)
    expected = torch.zeros(8, 8)
    if rank() == 1:
        expected[:rows, :columns] = torch.stack(values).sum(0)[2 : 2 + rows, 1 : 1 + columns]
    assert out.equal(expected)


def test_in_a_group():
    members = [size() - 1, 0]
    group = dist.new_group(members)
    if rank() in members:
        tensor, handle = meet((4, 4), group=group)
        out, _ = meet((4, 4), group=group)
        tensor.fill_(rank() + 1)
        handle.barrier()
        root = dist.get_group_rank(group, size() - 1)
        ops.tile_reduce(tensor[1:], out[1:], root, group.group_name)
        assert out[0].eq(0).all()
        assert out[1:].eq(size() + 1 if rank() == size() - 1 else 0).all()
        text = fails(r"must be in \[0, 2\)", ops.tile_reduce, tensor, out, 2, group.group_name)
        assert "OUT_OF_RANGE" in text
    dist.barrier()


def test_in_a_graph():
    values = inputs((4, 6))
    tensor = filled(values)
    out, _ = meet((4, 6))
    with symmem_torch.enable():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            ops.tile_reduce(tensor[:, :3], out[:, :3], 0, WORLD)
            ops.multi_root_tile_reduce([tensor[:, 3:]], out[:, 3:], [1], WORLD)
        assert out.eq(0).all()
        for factor in (1, 3):
            tensor.copy_(factor * values[rank()])
            graph.replay()
            total = factor * torch.stack(values).sum(0)
            expected = torch.zeros(4, 6)
            if rank() < 2:
                own = slice(3 * rank(), 3 * rank() + 3)
                expected[:, own] = total[:, own]
            assert out.equal(expected)


# --- many roots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_root_for_each_tile(dtype):
    tensor = filled(random_values((4, 5 * size()), dtype))
    expected = sums_of(tensor)
    tiles = [tensor[:, 5 * root : 5 * root + 5] for root in range(size())]
    out, _ = meet((4, 5 * size()), dtype)
    mine = slice(5 * rank(), 5 * rank() + 5)
    ops.multi_root_tile_reduce(tiles, out[:, mine], list(range(size())), WORLD)
    assert out[:, mine].equal(expected[:, mine])
    rest = out.clone()
    rest[:, mine] = 0
    assert rest.eq(0).all()


def test_tiles_of_several_shapes_that_overlap():
    values = inputs((6, 8))
    tensor = filled(values)
    places = [(slice(0, 1 + root), slice(root, 8)) for root in range(size())]
    roots = list(reversed(range(size())))
    mine = places[roots.index(rank())]
    out, _ = meet((6, 8))
    ops.multi_root_tile_reduce([tensor[place] for place in places], out[mine], roots, WORLD)
    expected = torch.zeros(6, 8)
    expected[mine] = torch.stack(values).sum(0)[mine]
    assert out.equal(expected)


def test_ranks_that_are_no_root():
    values = inputs((4, 4))
    tensor = filled(values)
    out, _ = meet((2, 4))
    ops.multi_root_tile_reduce([tensor[1:3]], out, [1], WORLD)
    expected = torch.stack(values).sum(0)[1:3]
    assert out.equal(expected if rank() == 1 else torch.zeros(2, 4))


def test_an_out_of_another_distance_of_rows():
    values = inputs((4, 4 * size()), torch.bfloat16)
    tensor = filled(values)
    tiles = [tensor[:, 4 * root : 4 * root + 4] for root in range(size())]
    out, _ = meet((4, 4), torch.bfloat16)
    ops.multi_root_tile_reduce(tiles, out, list(range(size())), WORLD)
    total = torch.stack([value.float() for value in values]).sum(0)
    assert out.float().equal(total[:, 4 * rank() : 4 * rank() + 4])


def zeros_of_the_pool(*shape: int) -> torch.Tensor:
    with symmem_torch.use_mem_pool(symm_mem.get_mem_pool("cpu")):
        return torch.zeros(*shape)


def test_tiles_of_several_tensors():
    """Each is of a tensor of its own, and every second one of these is of the pool."""
    values = inputs((size(), 2, 5))
    tiles = []
    for root in range(size()):
        tensor = zeros_of_the_pool(2, 5) if root % 2 else symm_mem.empty((2, 5), device="cpu")
        tiles.append(tensor.copy_(values[rank()][root])[:, 1:4])
    out, _ = meet((2, 5))
    ops.multi_root_tile_reduce(tiles, out[:, 1:4], list(range(size())), WORLD)
    expected = torch.zeros(2, 5)
    expected[:, 1:4] = torch.stack(values).sum(0)[rank()][:, 1:4]
    assert out.equal(expected)


def test_tile_of_the_pool():
    other, tile, out = zeros_of_the_pool(5), zeros_of_the_pool(2, 3), zeros_of_the_pool(2, 3)
    tile.fill_(rank() + 1)
    ops.tile_reduce(tile, out, 0, WORLD)
    assert out.eq(size() * (size() + 1) / 2 if rank() == 0 else 0).all()
    assert other.eq(0).all()


# --- what is wrong --------------------------------------------------------------------------------


def test_arguments_of_tile_reduce_that_do_not_fit():
    tensor, handle = meet((4, 8))
    out, _ = meet((4, 8))
    tensor.fill_(1)
    handle.barrier()
    half, other = tensor[:, :4], out[:, :4]
    for from_, to, text in (
        (tensor[0], other, "Only 2D tensors are supported"),
        (half, out.view(4, 2, 4), "Only 2D tensors are supported"),
        (half, other[1:], "output size must match"),
        (half, other.view(torch.int32), "dtype"),
        (half, out.view(8, 4)[:4], "strides"),
        (tensor[:, ::2], out[:, ::2], "do not follow each other.*INVALID_ARGUMENT"),
        (tensor.as_strided((3, 4), (2, 1)), out.as_strided((3, 4), (2, 1)), "rows that overlap"),
        (torch.zeros(4, 8)[:, :4], other, "in_tile is not in symmetric memory"),
        (half, torch.zeros(4, 8)[:, :4], "out_tile is not in symmetric memory"),
        (half, out.to("meta")[:, :4], "Meta|meta"),
    ):
        fails(text, ops.tile_reduce, from_, to, 0, WORLD)
    # Other ranks than the root do not look at out_tile, and would wait for it.
    for from_, to in ((half, tensor[:, 2:6]), (tensor[1:], tensor[:3])):
        if rank() == 1:
            text = fails("out_tile overlaps a tile", ops.tile_reduce, from_, to, 1, WORLD)
            assert "INVALID_ARGUMENT" in text
    for op in ("max", "avg", "", "SUM"):
        fails("only sum is supported for now", ops.tile_reduce, half, other, 0, WORLD, op)
    for root in (-1, size(), 1 << 31, 1 << 32, (1 << 63) - 1):
        fails(r"root must be in \[0", ops.tile_reduce, half, other, root, WORLD)
    fails("no process group", ops.tile_reduce, half, other, 0, "nowhere")
    assert out.eq(0).all() and tensor.eq(1).all() and symmem_torch.status(handle) == "OK"
    ops.tile_reduce(half, other, 0, WORLD)


@pytest.mark.parametrize("dtype", (torch.bool, torch.float8_e4m3fn, torch.complex64), ids=str)
def test_dtypes_that_have_no_sum(dtype):
    tensor, handle = meet((4, 4), dtype)
    out, _ = meet((4, 4), dtype)
    text = "cannot compute with elements of"
    fails(text, ops.tile_reduce, tensor, out, 0, WORLD)
    fails(text, ops.multi_root_tile_reduce, [tensor], out, [1], WORLD)
    handle.barrier()


def test_arguments_of_many_roots_that_do_not_fit():
    tensor, handle = meet((4, 4 * size()))
    wide, _ = meet((4, 4 * size()), torch.float64)
    out, _ = meet((4, 4))
    ranks = list(range(size()))
    tiles = [tensor[:, 4 * root : 4 * root + 4] for root in ranks]
    mixed = [wide[:, :4], *tiles[1:]]
    others = [*tiles[1:], tiles[0]]  # the tile of another rank
    for in_tiles, to, roots, text in (
        (tiles, out, ranks[1:], "Number of roots must match number of tiles"),
        (tiles, out, [*ranks, 0], "Number of roots must match number of tiles"),
        ([], out, [], "at least one tile"),
        (tiles, out, [0] * size(), "Each rank can only be a root once"),
        (tiles, out, [1, *ranks[1:]], "Each rank can only be a root once"),
        (tiles, out, [*ranks[:-1], -1], r"root must be in \[0"),
        (tiles, out, [*ranks[:-1], size()], r"root must be in \[0"),
        (tiles, out, [*ranks[:-1], 1 << 32], r"root must be in \[0"),
        (tiles, out[0], ranks, "Only 2D tensors are supported"),
        ([tensor[0], *tiles[1:]], out, ranks, "Only 2D tensors are supported"),
        (mixed, out, ranks, "dtype"),
        (tiles, out.view(torch.int32), ranks, "dtype"),
        (tiles, out[:3], ranks, "dimension 0 of out_tile.*INVALID_ARGUMENT"),
        (tiles, out.t(), ranks, "do not follow each other.*INVALID_ARGUMENT"),
        (tiles, others[rank()], ranks, "out_tile overlaps a tile of rank.*INVALID_ARGUMENT"),
        ([tile.clone() for tile in tiles], out, ranks, "in_tile is not in symmetric memory"),
        (tiles, out.clone(), ranks, "out_tile is not in symmetric memory"),
    ):
        fails(text, ops.multi_root_tile_reduce, in_tiles, to, roots, WORLD)
    fails("only sum", ops.multi_root_tile_reduce, tiles, out, ranks, WORLD, "max")
    fails("no process group", ops.multi_root_tile_reduce, tiles, out, ranks, "nowhere")
    assert out.eq(0).all() and symmem_torch.status(handle) == "OK"
    ops.multi_root_tile_reduce(tiles, out, ranks, WORLD)


def test_an_out_among_the_tiles_of_several_tensors():
    """What one call for each tensor does not see: the first would write what the second reads."""
    first, handle = meet((4, 4))
    second, _ = meet((4, 4))
    roots = [rank(), (rank() + 1) % size()]
    fails(
        "out_tile overlaps a tile",
        *(ops.multi_root_tile_reduce, [first, second], second, roots, WORLD),
    )
    assert second.eq(0).all()
    handle.barrier()


def test_a_peer_that_gave_up():
    """Its limit ends the wait of all, with symmem's record."""
    tensor, handle = meet((4, 4))
    out, _ = meet((4, 4))
    dist.barrier()
    if rank() == 1:
        fails("TIMEOUT", handle.barrier, channel=3, timeout_ms=300)
    else:
        fails("symmem tile_reduce.*(TIMEOUT|POISONED)", ops.tile_reduce, tensor, out, 0, WORLD)
        fails(
            "symmem multi_root_tile_reduce.*POISONED",
            *(ops.multi_root_tile_reduce, [tensor], out, [0], WORLD),
        )
    dist.barrier()
    assert out.eq(0).all()
    symmem_torch.reset(handle)
    ops.tile_reduce(tensor, out, 0, WORLD)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("name", ("tile_reduce", "multi_root_tile_reduce"))
def test_a_peer_that_does_not_come(name):
    """The limit is the group's. What the ranks do together takes less, even where they are slow."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=15))
    tensor, handle = meet((4, 4), group=group)
    out, _ = meet((4, 4), group=group)
    dist.barrier()
    if rank() == 0:
        many = name != "tile_reduce"
        arguments = ([tensor], out, [0]) if many else (tensor, out, 0)
        begin = time.monotonic()
        text = fails(f"symmem {name}: .*TIMEOUT", getattr(ops, name), *arguments, group.group_name)
        assert "missing ranks 1" in text and symmem_torch.status(handle) == "TIMEOUT"
        assert time.monotonic() - begin < 50
        assert out.eq(0).all()
    dist.barrier()


@pytest.mark.ends
def test_dead_peer():
    tensor, _ = meet((4, 4))
    out, _ = meet((4, 4))
    dist.barrier()
    if rank() == 1:
        os._exit(7)
    fails("symmem tile_reduce.*PEER_LOST", ops.tile_reduce, tensor, out, 0, WORLD)


@pytest.mark.here
def test_ranks_that_differ(tmp_path):
    """A check of all ranks' arguments, for which a variable asks, before anything is written."""
    results = programs(
        """
        import faulthandler, os, sys
        os.environ["SYMMEM_CHECK_COLLECTIVES"] = "1"
        import torch, symmem_torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        faulthandler.dump_traceback_later(100, exit=True)
        rank = int(sys.argv[1])
        store = dist.FileStore(sys.argv[2], 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        tensor = symm_mem.empty(4, 8, device="cpu").fill_(1)
        out = symm_mem.empty(4, 8, device="cpu").fill_(0)
        handle = symm_mem.rendezvous(tensor, "0")
        ops = torch.ops.symm_mem
        for one, many in (
            ((tensor, out, rank, "0"), ([tensor], out, [rank], "0")),
            ((tensor[rank:], out[rank:], 0, "0"), ([tensor[rank:]], out[rank:], [0], "0")),
            (
                (tensor[:, rank : rank + 4], out[:, :4], 0, "0"),
                ([tensor[:, rank : rank + 4]], out[:, :4], [0], "0"),
            ),
        ):
            for operator, arguments in (
                (ops.tile_reduce, one),
                (ops.multi_root_tile_reduce, many),
            ):
                try:
                    operator(*arguments)
                except RuntimeError as error:
                    assert "MISMATCH" in str(error), error
                else:
                    raise SystemExit("no exception")
                assert out.eq(0).all() and symmem_torch.status(handle) == "OK"
        ops.tile_reduce(tensor, out, 1, "0")
        assert out.eq(2 * rank).all()
        dist.barrier()
        """,
        tmp_path,
    )
    assert [result.returncode for result in results] == [0, 0], [one.stderr for one in results]

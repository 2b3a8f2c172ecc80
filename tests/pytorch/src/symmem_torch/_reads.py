# SPDX-License-Identifier: BSD-3-Clause
"""Operators of PyTorch's NCCL and NVSHMEM backends for which symmem has no call, over its handles:
between two barriers each rank reads what it is to have from the memory of its peers.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed._symmetric_memory as symm_mem


def _check(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(text)


def _handle(tensor: torch.Tensor, group_name: str) -> Any:
    handle = symm_mem.rendezvous(tensor, group_name)
    _check(handle is not None, "symmem: the tensor must be symmetric memory, of symm_mem.empty()")
    return handle


@contextlib.contextmanager
def _reading(handle: Any) -> Iterator[None]:
    """What peers wrote before is there, and they change nothing until all have read."""
    handle.barrier()
    try:
        yield
    finally:
        handle.barrier()


def _of_peer(handle: Any, peer: int, tensor: torch.Tensor) -> torch.Tensor:
    """The same view of the peer's memory."""
    if tensor.numel() == 0:
        return tensor
    ends = ((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    place = getattr(handle, "offset", 0) // tensor.element_size() + tensor.storage_offset()
    flat = handle.get_buffer(peer, (1 + sum(ends),), tensor.dtype, place)
    return flat.as_strided(tensor.shape, tensor.stride())


def _sum_of(handle: Any, tensor: torch.Tensor) -> torch.Tensor:
    """In the order of ranks; small floating-point elements are added up as larger ones."""
    parts = [_of_peer(handle, peer, tensor) for peer in range(handle.world_size)]
    return torch.stack(parts).sum(0)


# --- all-to-all of rows, by ranks and experts -----------------------------------------------------


def _check_rows(
    input: torch.Tensor, out: torch.Tensor, splits: torch.Tensor, out_splits: torch.Tensor
) -> None:
    tensors = (input, out, splits, out_splits)
    _check(
        all(tensor.is_contiguous() for tensor in tensors),
        "input, out, splits and offsets must be contiguous",
    )
    _check(
        input.dim() > 0 and input.dtype == out.dtype and input.stride(0) == out.stride(0),
        "input and out must have the same dtype and same stride at dim 0",
    )
    _check(splits.dtype == out_splits.dtype == torch.int64, "splits and offsets must be int64")


def _offsets(lengths: Sequence[int]) -> list[int]:
    """Where each begins if one follows the other."""
    return [0, *itertools.accumulate(lengths)][:-1]


def _aligned_offsets(lengths: list[int], row: int, align: int) -> list[int]:
    """Rows of `row` parts follow each other; each but an aligned 0 begins at a multiple."""
    rows = [lengths[begin : begin + row] for begin in range(0, len(lengths), row)]
    sizes = [sum(part) for part in rows]
    if align:
        sizes = [max(align, -(-size // align) * align) for size in sizes]
    starts = _offsets(sizes)
    return [start + place for start, part in zip(starts, rows) for place in _offsets(part)]


def _move_rows(
    handle: Any,
    input: torch.Tensor,
    out: torch.Tensor,
    out_splits_offsets: torch.Tensor,
    parts: list[tuple[int, int, int]],
    offsets: list[int],
) -> None:
    """Each part is a peer, a length and where in the peer's input it begins."""
    for (peer, length, begin), place in zip(parts, offsets):
        _check(
            0 <= begin and 0 <= length <= input.shape[0] - begin and place + length <= out.shape[0],
            f"the splits are larger than the tensors: {length} rows from row {begin} of "
            f"{input.shape[0]} to row {place} of {out.shape[0]}",
        )
        out[place : place + length] = _of_peer(handle, peer, input)[begin : begin + length]
    out_splits_offsets.copy_(torch.tensor([[part[1] for part in parts], offsets]))


def all_to_all_vdev_2d(
    input: torch.Tensor,
    out: torch.Tensor,
    in_splits: torch.Tensor,
    out_splits_offsets: torch.Tensor,
    group_name: str,
    major_align: int | None = None,
) -> None:
    """Rows for experts, ordered by ranks, are received by experts, whose rows are aligned."""
    align = 1 if major_align is None else major_align
    _check(align > 0, "major_align must be positive")
    _check_rows(input, out, in_splits, out_splits_offsets)
    handle, splits = _handle(input, group_name), _handle(in_splits, group_name)
    size, rank = handle.world_size, handle.rank
    _check(
        in_splits.dim() == 1
        and in_splits.numel() % size == 0
        and out_splits_offsets.shape == (2, in_splits.numel()),
        "out_splits_offsets must be 2D with 2 rows, each row must be a multiple of world_size",
    )
    experts = in_splits.numel() // size
    with _reading(handle):
        sent = [_of_peer(splits, peer, in_splits).tolist() for peer in range(size)]
        begins = [_offsets(lengths) for lengths in sent]
        parts = [
            (peer, sent[peer][own], begins[peer][own])
            for own in range(rank * experts, (rank + 1) * experts)
            for peer in range(size)
        ]
        offsets = _aligned_offsets([part[1] for part in parts], size, align)
        _move_rows(handle, input, out, out_splits_offsets, parts, offsets)


def all_to_all_vdev_2d_offset(
    input: torch.Tensor,
    out: torch.Tensor,
    in_splits_offsets: torch.Tensor,
    out_splits_offsets: torch.Tensor,
    group_name: str,
) -> None:
    """The way back: rows by experts, each with its place; received by ranks."""
    _check_rows(input, out, in_splits_offsets, out_splits_offsets)
    handle, splits = _handle(input, group_name), _handle(in_splits_offsets, group_name)
    size, rank = handle.world_size, handle.rank
    shape = in_splits_offsets.shape
    _check(
        len(shape) == 2
        and shape[0] == 2
        and shape[1] % size == 0
        and out_splits_offsets.shape == shape,
        "in_splits_offsets must be 2D with 2 rows, each row must be a multiple of world_size",
    )
    with _reading(handle):
        sent = [_of_peer(splits, peer, in_splits_offsets).tolist() for peer in range(size)]
        parts = [
            (peer, sent[peer][0][part], sent[peer][1][part])
            for peer in range(size)
            for part in range(rank, shape[1], size)
        ]
        offsets = _offsets([part[1] for part in parts])
        _move_rows(handle, input, out, out_splits_offsets, parts, offsets)


# --- blocks and tiles -----------------------------------------------------------------------------


def _check_sum(operation: str) -> None:
    _check(operation == "sum", f'only sum is supported for now (got "{operation}")')


def tile_reduce(
    in_tile: torch.Tensor,
    out_tile: torch.Tensor,
    root: int,
    group_name: str,
    reduce_op: str = "sum",
) -> None:
    multi_root_tile_reduce([in_tile], out_tile, [root], group_name, reduce_op)


def multi_root_tile_reduce(
    in_tiles: list[torch.Tensor],
    out_tile: torch.Tensor,
    roots: list[int],
    group_name: str,
    reduce_op: str = "sum",
) -> None:
    """Each root has the sum of its tile of all ranks; one rank is root once at most."""
    _check_sum(reduce_op)
    _check(
        len(in_tiles) == len(roots) > 0 and len(set(roots)) == len(roots),
        "there must be a root for each tile, and each of them once",
    )
    _check(
        all(tile.dim() == 2 and tile.dtype == out_tile.dtype for tile in in_tiles),
        "tiles must have two dimensions and out_tile's dtype",
    )
    handles = [_handle(tile, group_name) for tile in in_tiles]
    size, rank = handles[0].world_size, handles[0].rank
    _check(all(0 <= root < size for root in roots), f"roots must be in [0, {size}) (got {roots})")
    with _reading(handles[0]):
        if rank in roots:
            own = roots.index(rank)
            _check(
                out_tile.shape == in_tiles[own].shape,
                f"out_tile must have in_tile's shape: {out_tile.shape}, {in_tiles[own].shape}",
            )
            out_tile.copy_(_sum_of(handles[own], in_tiles[own]))


def reduce_scatter_offset(
    input: torch.Tensor,
    out: list[torch.Tensor],
    group_name: str,
    dim: int,
    offsets: list[int] | None = None,
    dst_ranks: list[int] | None = None,
    red_op: str = "sum",
) -> None:
    """Blocks of rows or columns, each summed up by the rank that it is for."""
    _check_sum(red_op)
    _check(input.dim() == 2 and dim in (0, 1), "input must have two dimensions, and dim be 0 or 1")
    handle = _handle(input, group_name)
    size, rank = handle.world_size, handle.rank
    length = input.shape[dim]
    if offsets is None:
        _check(length % size == 0, f"the group's size does not divide {length}")
        offsets = [length // size * end for end in range(1, size + 1)]
    if dst_ranks is None:
        dst_ranks = [block % size for block in range(len(offsets))]
    begins = [0, *offsets][:-1]
    _check(len(dst_ranks) == len(offsets), "offsets and dst_ranks must have one length")
    _check(
        all(0 <= dst < size for dst in dst_ranks),
        f"dst_ranks must be in [0, {size}) (got {dst_ranks})",
    )
    _check(
        all(begin <= end <= length for begin, end in zip(begins, offsets)),
        f"offsets must rise, and not beyond {length} (got {offsets})",
    )
    blocks = [
        input.narrow(dim, begin, end - begin)
        for begin, end, dst in zip(begins, offsets, dst_ranks)
        if dst == rank
    ]
    _check(
        [block.shape for block in blocks] == [one.shape for one in out],
        "out must have a tensor of its shape for each block of this rank",
    )
    with _reading(handle):
        for block, one in zip(blocks, out):
            one.copy_(_sum_of(handle, block))


def all_to_all_nd(
    input: torch.Tensor, out: torch.Tensor, scatter_dim: int, gather_dim: int, group_name: str
) -> None:
    """Blocks of columns to rows, or of rows to columns."""
    _check(
        {scatter_dim, gather_dim} == {0, 1},
        "scatter_dim and gather_dim must be 0 and 1, or 1 and 0",
    )
    handle = _handle(input, group_name)
    size, rank = handle.world_size, handle.rank
    _check(out.is_contiguous() and input.numel() == out.numel(), "out must be contiguous and fit")
    _check(input.dtype == out.dtype, "out must have input's dtype")
    block = input if input.dim() == 3 else input.unflatten(scatter_dim, (size, -1))
    shape = list(block.shape)
    _check(
        len(shape) == 3 and shape[scatter_dim] == size,
        f"input must have two dimensions, or three with {size} blocks in dimension {scatter_dim}",
    )
    own = block.select(scatter_dim, rank)
    whole = out.view([size, *own.shape] if gather_dim == 0 else [own.shape[0], size, own.shape[1]])
    with _reading(handle):
        for peer in range(size):
            whole.select(gather_dim, peer).copy_(_of_peer(handle, peer, own))


KERNELS = {
    "all_to_all_vdev_2d": all_to_all_vdev_2d,
    "all_to_all_vdev_2d_offset": all_to_all_vdev_2d_offset,
    "tile_reduce": tile_reduce,
    "multi_root_tile_reduce": multi_root_tile_reduce,
    "nccl_reduce_scatter_offset": reduce_scatter_offset,
    "nccl_all_to_all_nd": all_to_all_nd,
}

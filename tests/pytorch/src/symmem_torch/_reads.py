# SPDX-License-Identifier: BSD-3-Clause
"""Operators of PyTorch's NCCL and NVSHMEM backends for which symmem has no call, over its handles:
between two barriers each rank reads what it is to have from the memory of its peers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
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
    "tile_reduce": tile_reduce,
    "multi_root_tile_reduce": multi_root_tile_reduce,
    "nccl_reduce_scatter_offset": reduce_scatter_offset,
    "nccl_all_to_all_nd": all_to_all_nd,
}

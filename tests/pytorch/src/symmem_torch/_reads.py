# SPDX-License-Identifier: BSD-3-Clause
"""An operator of PyTorch's NCCL backend for which symmem has no call, over its handles: between two
barriers each rank reads what it is to have from the memory of its peers.
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
    "nccl_all_to_all_nd": all_to_all_nd,
}

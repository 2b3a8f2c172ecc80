# SPDX-License-Identifier: BSD-3-Clause
"""What tests share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

WORLD = "0"  # PyTorch's name of the group of all ranks

rank = dist.get_rank
size = dist.get_world_size


def meet(
    shape: Any, dtype: torch.dtype = torch.float32, group: Any = WORLD
) -> tuple[torch.Tensor, Any]:
    """A new symmetric tensor and its handle. Collective."""
    tensor = symm_mem.empty(shape, dtype=dtype, device="cpu")
    return tensor, symm_mem.rendezvous(tensor, group)


def is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether it is symmetric memory; PyTorch 2.11 has no call that tells without other ranks."""
    ask = getattr(symm_mem, "is_symm_mem_tensor", None)
    return ask(tensor) if ask else symm_mem.rendezvous(tensor, WORLD) is not None


def fails(pattern: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """That it raises, and what it says. Exceptions of any kind but those that end programs."""
    try:
        function(*arguments, **named)
    except Exception as error:
        text = str(error)
        assert re.search(pattern, text), f"it said: {text}"
        return text
    raise AssertionError(f"no exception; expected one that says {pattern!r}")


def inputs(shape: Any, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """What each rank has: whole numbers, so that sums are exact. The same on every rank."""
    generator = torch.Generator().manual_seed(42)
    return [
        torch.randint(
            -8, 9, shape if isinstance(shape, tuple) else (shape,), generator=generator
        ).to(dtype)
        for _ in range(size())
    ]

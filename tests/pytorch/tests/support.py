# SPDX-License-Identifier: BSD-3-Clause
"""What tests share."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch

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


# --- whole programs -------------------------------------------------------------------------------


def _environment(path: str | None) -> dict[str, str]:
    """That of no job, with this package, behind `path`."""
    folders = [path or "", str(pathlib.Path(symmem_torch.__file__).parents[1])]
    own = {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    ranks = ("RANK", "WORLD", "LOCAL")
    return {name: text for name, text in os.environ.items() if not name.startswith(ranks)} | own


def program(
    text: str, *arguments: str, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs it, and ends it after two minutes."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        env=_environment(path),
        capture_output=True,
        text=True,
        timeout=120,
    )


def programs(text: str, folder: pathlib.Path) -> list[subprocess.CompletedProcess[str]]:
    """Two ranks, whose arguments are the rank and the path of a store's file."""
    with ThreadPoolExecutor(2) as threads:
        ranks = [
            threads.submit(program, text, str(number), str(folder / "store")) for number in range(2)
        ]
        return [one.result() for one in ranks]

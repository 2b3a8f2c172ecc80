# SPDX-License-Identifier: BSD-3-Clause
"""symmem's pool in the form of torch.cuda.MemPool: tensors that are symmetric wherever they were
made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from . import _library

ALLOCATOR = object()  # stands for symmem's in MemPool(allocator): there is only one


class MemPool:
    """All have the same memory, that of the process's symmetric pool. Arguments are taken as
    torch's are.
    """

    def __init__(
        self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False
    ) -> None:
        if allocator is not ALLOCATOR and allocator is not None:
            raise TypeError(
                "MemPool: only the allocator of get_mempool_allocator() is symmetric memory's"
            )
        self.allocator = allocator
        self.id = (0, 1)


POOL = MemPool(ALLOCATOR)


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """CPU tensors that this thread makes in the with statement are symmetric memory."""
    if not isinstance(pool, MemPool):
        raise TypeError(
            f"use_mem_pool: a symmem_torch.MemPool is needed, not {type(pool).__name__}"
        )
    _library.operators().enter_pool()
    try:
        yield
    finally:
        _library.operators().leave_pool()

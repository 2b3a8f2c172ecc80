# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's symmetric memory on CPU tensors: symmem as its allocator and as its operators.

Importing this registers the allocator "SYMMEM" for CPU tensors and kernels of torch.ops.symm_mem
for them; everything else is PyTorch's own interface, torch.distributed._symmetric_memory.
`enable()` lets code that says "cuda" run on CPU tensors, and so does `pytest -p
symmem_torch.emulate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _library

_library.load()

from . import _layer  # noqa: E402  (needs the library)
from ._pool import MemPool, use_mem_pool  # noqa: E402

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _SymmetricMemory

_layer.install()

__all__ = ["MemPool", "disable", "enable", "enabled", "reset", "status", "use_mem_pool"]


def reset(handle: _SymmetricMemory, timeout_ms: int = 0) -> None:
    """Collective: makes a handle usable again after a timeout or a lost peer. 0: the process
    group's limit.
    """
    _library.operators().reset(_layer.boxed(handle), timeout_ms)


def status(handle: _SymmetricMemory) -> str:
    """The name of the status that poisoned the handle, "TIMEOUT" for example, or "OK"."""
    return _library.operators().status(_layer.boxed(handle))


def enable(devices: int | None = None):  # noqa: ANN201  (a context manager, too)
    """From now on, or for a with statement, code that says "cuda" runs on CPU tensors.

    `devices` is how many GPUs there seem to be; without it LOCAL_WORLD_SIZE or WORLD_SIZE, or 4.
    """
    from . import _emulation

    return _emulation.enable(devices)


def disable() -> None:
    """Ends what enable() began."""
    from . import _emulation

    _emulation.disable()


def enabled() -> bool:
    from . import _emulation

    return _emulation.is_enabled()

# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's symmetric memory on CPU tensors: symmem as its allocator and as its operators.

Importing this registers the allocator "SYMMEM" for CPU tensors and kernels of torch.ops.symm_mem
for them; everything else is PyTorch's own interface, torch.distributed._symmetric_memory.
`enable()` lets code that says "cuda" run on CPU tensors, and so does `pytest -p
symmem_torch.emulate`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from . import _library

_library.load()

from . import _layer  # noqa: E402  (needs the library)
from ._pool import MemPool, use_mem_pool  # noqa: E402

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import _SymmetricMemory

_layer.install()

__all__ = [
    *("MemPool", "disable", "enable", "enabled", "reset", "status", "use_mem_pool"),
    *("wait_value", "write_value"),
]


def reset(handle: _SymmetricMemory, timeout_ms: int = 0) -> None:
    """Collective: makes a handle usable again after a timeout or a lost peer. 0: the process
    group's limit.
    """
    _library.operators().reset(_layer.boxed(handle), timeout_ms)


def status(handle: _SymmetricMemory) -> str:
    """The name of the status that poisoned the handle, "TIMEOUT" for example, or "OK"."""
    return _library.operators().status(_layer.boxed(handle))


def _as_signed(value: int, bits: int) -> int:
    """A word's value as an operator takes it, which has numbers of 64 bits with a sign."""
    if not 0 <= value < 1 << bits:
        raise RuntimeError(
            f"symmem: value must be in [0, 2^{bits}) (got {value}) [OUT_OF_RANGE]"
        )
    return value - (1 << 64) if value >> 63 else value


def write_value(tensor: torch.Tensor, offset: int, value: int) -> None:
    """Writes one word of a flat tensor of uint32 or uint64, this rank's or a peer's. A rank that
    sees it sees what this one wrote before.
    """
    bits = 8 * tensor.element_size()
    _library.operators().write_value(tensor, offset, _as_signed(operator.index(value), bits))


def wait_value(
    handle: _SymmetricMemory,
    value: int,
    *,
    source: int,
    compare: str = "eq",
    rank: int | None = None,
    offset: int = 0,
    bits: int = 32,
    timeout_ms: int = 0,
) -> None:
    """Waits until a word is equal to `value`, or ne, gt, ge, lt or le, as `compare` says.

    The word has 32 or 64 bits and is at `offset` bytes from the handle's tensor in the memory of
    `rank`, without it in this rank's. `source` is the rank that writes it: where that ends, or
    gives up, so does the wait. 0: the process group's limit.
    """
    if bits not in (32, 64):
        raise RuntimeError(f"symmem: bits must be 32 or 64 (got {bits}) [INVALID_ARGUMENT]")
    _library.operators().wait_value(
        _layer.boxed(handle),
        handle.rank if rank is None else rank,
        offset,
        compare,
        _as_signed(operator.index(value), bits),
        source,
        bits == 32,
        timeout_ms,
    )


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

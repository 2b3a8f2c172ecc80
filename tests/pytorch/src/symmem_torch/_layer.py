# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's Python layer of symmetric memory, for CPU tensors.

It is written for accelerators: its operators have kernels for these alone, ask for the current
stream, and choose by the names of PyTorch's own backends. What is installed here gives those
operators kernels for CPU tensors, which are PyTorch's own functions run with streams of the CPU,
and leaves other tensors to PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed._symmetric_memory as symm_mem
import torch.distributed.distributed_c10d as c10d
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory

from . import _library, _reads, _streams
from ._pool import ALLOCATOR, POOL, MemPool, use_mem_pool

CPU = torch.device("cpu")
BACKEND = "SYMMEM"

# Operator and the function of PyTorch's that is its kernel for CUDA; not every version has all.
FUNCTIONS = {
    "get_remote_tensors": "_get_remote_tensors_default",
    "fused_all_gather_matmul": "_fused_all_gather_matmul",
    "fused_all_gather_scaled_matmul": "_fused_all_gather_scaled_matmul",
    "fused_matmul_reduce_scatter": "_fused_matmul_reduce_scatter",
    "fused_scaled_matmul_reduce_scatter": "_fused_scaled_matmul_reduce_scatter",
    "_low_contention_all_gather": "_low_contention_all_gather",
    "_low_contention_reduce_scatter": "_low_contention_reduce_scatter",
    "_low_contention_all_gather_ce_multicast": "_low_contention_all_gather_ce_multicast",
    "_low_contention_all_gather_ce_multicast_out": "_low_contention_all_gather_ce_multicast_out",
}

_here = threading.local()
_kernels = torch.library.Library("symm_mem", "IMPL")
_workspaces: dict[str, tuple[weakref.ref[Any], torch.Tensor]] = {}


def boxed(handle: _SymmetricMemory) -> Any:
    """As operators take a handle."""
    return handle.boxed() if hasattr(handle, "boxed") else handle


# --- streams and devices, for functions of PyTorch's that serve a CPU tensor ----------------------

_accelerator = types.SimpleNamespace(
    is_available=lambda: True,
    current_stream=_streams.current_stream,
    current_device_index=lambda: 0,
    current_accelerator=lambda check_available=False: CPU,
    synchronize=lambda device=None: None,
)
_cuda = types.SimpleNamespace(
    is_available=lambda: False,
    current_device=lambda: 0,
    current_stream=_streams.current_stream,
    is_current_stream_capturing=lambda: False,
    Stream=_streams.Stream,
    Event=_streams.Event,
    MemPool=MemPool,
    use_mem_pool=use_mem_pool,
    _sleep=lambda cycles: None,
)


class _Device:
    """torch.device, where PyTorch's layer makes one of an accelerator's: the CPU."""

    def __new__(cls, *_: Any, **__: Any) -> torch.device:  # type: ignore[misc]
        return CPU


_for_cpu = {
    "accelerator": _accelerator,
    "cuda": _cuda,
    "device": _Device,
    "Event": _streams.Event,
    "Stream": _streams.Stream,
    "get_device_module": lambda device=None: _cuda,
}


class _Torch(types.ModuleType):
    """What PyTorch's layer knows as "torch": torch, but for a thread that serves a CPU tensor."""

    def __getattr__(self, name: str) -> Any:
        if name in _for_cpu and getattr(_here, "depth", 0):
            return _for_cpu[name]
        return getattr(torch, name)


@contextlib.contextmanager
def on_cpu() -> Iterator[None]:
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1


def is_on_cpu() -> bool:
    return getattr(_here, "depth", 0) > 0


def _served_on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with on_cpu():
            return function(*args, **kwargs)

    return kernel


# --- functions of the module ----------------------------------------------------------------------


_has_accelerator = torch.accelerator.is_available  # the real one, whatever is emulated later


def _workspace(group_name: str, min_size: int) -> _SymmetricMemory:
    """One for each process group, where PyTorch has one for each name: names come back with other
    members.
    """
    group = c10d._resolve_process_group(group_name)
    known, tensor = _workspaces.get(group_name, (None, None))
    if known is None or known() is not group or tensor.numel() < min_size:
        size = max(min_size, 1)
        tensor = _SymmetricMemory.empty_strided_p2p((size,), [1], torch.uint8, CPU, group_name)
        _workspaces[group_name] = (weakref.ref(group), tensor)
    return _SymmetricMemory.rendezvous(tensor, group_name)


def _is_ours(device: torch.device) -> bool:
    return device.type == "cpu" and _SymmetricMemory.get_backend(device) == BACKEND


# Not every version has all.
_QUANTIZED = tuple(
    getattr(torch, name)
    for name in ("qint8", "quint8", "qint32", "quint4x2", "quint2x4")
    if hasattr(torch, name)
)


def _of_plain_dtype(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Without a scale, which memory alone does not have, PyTorch crashes when it reads a tensor."""

    @functools.wraps(original)
    def empty(size: Any, stride: Any, dtype: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        if dtype in _QUANTIZED and _is_ours(torch.device(device)):
            raise RuntimeError(
                f"symmem: a tensor of {dtype} needs a scale; take one of the plain dtype of that "
                "size [INVALID_ARGUMENT]"
            )
        return original(size, stride, dtype, device, *args, **kwargs)

    return empty


def _is_enabled_for_group(group_name: str) -> bool:
    try:
        c10d._resolve_process_group(group_name)
    except (RuntimeError, ValueError):
        return False
    return _is_ours(CPU)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """`make` gets what was there; what a version of PyTorch does not have is left out."""
    original = getattr(owner, name, None)
    if original is not None:
        replacement = make(original)
        setattr(owner, name, staticmethod(replacement) if isinstance(owner, type) else replacement)


def _replace_functions() -> None:
    _replace(_SymmetricMemory, "empty_strided_p2p", _of_plain_dtype)
    _replace(
        symm_mem,
        "get_symm_mem_workspace",
        lambda original: lambda group_name, min_size: (
            _workspace(group_name, min_size)
            if is_on_cpu() or not _has_accelerator()
            else original(group_name, min_size)
        ),
    )
    _replace(
        symm_mem,
        "_get_backend_stream",
        lambda original: lambda priority=0: (
            _streams.current_stream() if is_on_cpu() else original(priority)
        ),
    )
    _replace(
        symm_mem,
        "is_symm_mem_enabled_for_group",
        lambda original: lambda group_name: (
            original(group_name)
            if symm_mem._is_test_mode or _has_accelerator()
            else _is_enabled_for_group(group_name)
        ),
    )
    _replace(
        _SymmetricMemory,
        "has_multicast_support",
        lambda original: lambda device_type, index: (
            original(DeviceType.CPU if is_on_cpu() else device_type, index)
        ),
    )
    _replace(
        symm_mem,
        "get_mem_pool",
        lambda original: lambda device: (
            POOL if _is_ours(torch.device(device)) else original(device)
        ),
    )
    for owner in (symm_mem, _SymmetricMemory):
        _replace(
            owner,
            "get_mempool_allocator",
            lambda original: lambda device: (
                ALLOCATOR if _is_ours(torch.device(device)) else original(device)
            ),
        )


def _replace_words() -> None:
    """PyTorch's own reach for CUDA whatever the tensor is."""
    _replace(
        _SymmetricMemory,
        "memset32",
        lambda original: lambda input, offset, val, count=1: (
            torch.ops.symm_mem.memset32_(input, offset, val, count)
            if input.device.type == "cpu"
            else original(input, offset, val, count)
        ),
    )
    _replace(
        _SymmetricMemory,
        "stream_write_value32",
        lambda original: lambda input, offset, val: (
            torch.ops.symm_mem.stream_write_value32_(input, offset, val)
            if input.device.type == "cpu"
            else original(input, offset, val)
        ),
    )


def _replace_one_sided() -> None:
    """These choose an operator by the backend's name; ours has kernels for the operators of the
    NCCL backend.
    """
    real = symm_mem.get_backend

    def get_backend(device: Any) -> str | None:
        name = real(device)
        return "NCCL" if name == BACKEND and getattr(_here, "choosing", False) else name

    symm_mem.get_backend = get_backend
    for name in ("get", "put_signal", "wait_signal", "reduce_scatter_offset", "all_to_all_nd"):
        _replace(symm_mem, name, _choosing)


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        _here.choosing = True
        try:
            return original(*args, **kwargs)
        finally:
            _here.choosing = False

    return chosen


def _register_kernels() -> None:
    for name, own_name in FUNCTIONS.items():
        function = getattr(symm_mem, own_name, None)
        if function is not None:
            _kernels.impl(name, _served_on_cpu(function), "CPU")
    for name, function in _reads.KERNELS.items():
        if hasattr(torch.ops.symm_mem, name):  # not every version has all
            _kernels.impl(name, _served_on_cpu(function), "CPU")


def _ranks_of(group_name: str) -> list[int]:
    """The ranks of the world that a process group has."""
    return c10d.get_process_group_ranks(c10d._resolve_process_group(group_name))


def install() -> None:
    """Once, when the package is imported."""
    symm_mem.torch = _Torch("torch")
    _replace_functions()
    _library.module().replace_methods(_SymmetricMemory)
    _library.module().set_ranks_function(_ranks_of)
    _replace_words()
    _replace_one_sided()
    _register_kernels()
    if not hasattr(_SymmetricMemory, "group_name"):
        _SymmetricMemory.group_name = property(
            lambda self: torch.ops.symmem.group_name(boxed(self))
        )

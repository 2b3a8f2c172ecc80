# SPDX-License-Identifier: BSD-3-Clause
"""Code that says "cuda" on CPU tensors.

Where such code names a device, makes a stream or asks how many GPUs there are, it asks torch; what
is replaced here answers for CPU tensors. All of it is undone at the end.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.overrides
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import _SymmetricMemory
from torch.overrides import TorchFunctionMode

from . import _graphs, _inductor, _streams
from ._pool import MemPool, use_mem_pool

REAL_DEVICE = torch.device
CPU = REAL_DEVICE("cpu")
MISSING = object()


def on_cpu(device: Any) -> Any:
    """The CPU for whatever names a GPU, and everything else as it is."""
    if isinstance(device, REAL_DEVICE):
        return CPU if device.type == "cuda" else device
    if isinstance(device, str):
        return "cpu" if device.split(":")[0] == "cuda" else device
    return CPU if isinstance(device, int) and not isinstance(device, bool) else device


class _DeviceMeta(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        name = args[0] if args else kwargs.get("type", kwargs.get("device"))
        return CPU if on_cpu(name) is not name else REAL_DEVICE(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, REAL_DEVICE)


class _Device(metaclass=_DeviceMeta):
    """torch.device, which makes the CPU of "cuda"."""


_Device.__module__, _Device.__qualname__, _Device.__name__ = "torch", "device", "device"


class _Mode(TorchFunctionMode):
    """Tensors are made on the CPU and stay there."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda or func is torch.Tensor.pin_memory:
            return args[0]
        if kwargs.get("device") is not None:
            kwargs["device"] = on_cpu(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if func is torch.Tensor.to and len(args) > 1:
            args = (args[0], on_cpu(args[1]), *args[2:])
        elif any(isinstance(arg, REAL_DEVICE) for arg in args):
            args = tuple(on_cpu(arg) if isinstance(arg, REAL_DEVICE) else arg for arg in args)
        return func(*args, **kwargs)


# --- torch.cuda and torch.accelerator -------------------------------------------------------------


class _Cards:
    """GPUs that there seem to be."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.current = int(os.environ.get("LOCAL_RANK", "0"))

    def set_current(self, device: Any) -> None:
        self.current = device if isinstance(device, int) else getattr(device, "index", None) or 0

    @contextlib.contextmanager
    def device(self, device: Any) -> Iterator[None]:
        before = self.current
        self.set_current(device)
        try:
            yield
        finally:
            self.current = before

    def properties(self, device: Any = None) -> Any:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return types.SimpleNamespace(
            name="symmem emulation",
            major=9,
            minor=0,
            total_memory=memory,
            multi_processor_count=1,
            gcnArchName="",
            uuid="0",
        )


def _sleep(cycles: int) -> None:
    time.sleep(cycles / 1e9)


@contextlib.contextmanager
def _stream(stream: Any) -> Iterator[None]:
    with stream if stream is not None else contextlib.nullcontext():
        yield


def _common(cards: _Cards) -> dict[str, Any]:
    return {
        "is_available": lambda: True,
        "device_count": lambda: cards.count,
        "synchronize": lambda device=None: None,
        "current_stream": lambda device=None: _streams.current_stream(device),
    }


def _for_cuda(cards: _Cards) -> dict[str, Any]:
    return _common(cards) | {
        "init": lambda: None,
        "is_initialized": lambda: True,
        "current_device": lambda: cards.current,
        "set_device": cards.set_current,
        "device": cards.device,
        "get_device_properties": cards.properties,
        "get_device_name": lambda device=None: "symmem emulation",
        "get_device_capability": lambda device=None: (9, 0),
        "can_device_access_peer": lambda device, peer: True,
        "is_bf16_supported": lambda *_, **__: True,
        "Stream": _streams.Stream,
        "Event": _streams.Event,
        "stream": _stream,
        "default_stream": _streams.default_stream,
        "is_current_stream_capturing": _graphs.is_capturing,
        "CUDAGraph": _graphs.CUDAGraph,
        "graph": _graphs.graph,
        "MemPool": MemPool,
        "use_mem_pool": use_mem_pool,
        "manual_seed": torch.default_generator.manual_seed,
        "manual_seed_all": torch.default_generator.manual_seed,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "empty_cache": lambda: None,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "mem_get_info": lambda device=None: (cards.properties().total_memory,) * 2,
        "_sleep": _graphs.later(_sleep),
    }


def _for_accelerator(cards: _Cards) -> dict[str, Any]:
    return _common(cards) | {
        "current_accelerator": lambda check_available=False: CPU,
        "current_device_index": lambda: cards.current,
        "set_device_index": cards.set_current,
    }


def _compile(original: Any) -> Any:
    """What is compiled runs without the mode, whose own code would be compiled with it."""

    def compile(model: Any = None, **kwargs: Any) -> Any:
        if model is None:
            return lambda model: compile(model, **kwargs)
        _inductor.install()
        compiled = original(model, **kwargs)
        if not isinstance(model, types.FunctionType):
            return compiled

        @functools.wraps(model)
        def call(*args: Any, **named: Any) -> Any:
            # With an accelerator its real streams would stand in the compiled code.
            none = mock.patch.object(torch.accelerator, "is_available", lambda: False)
            with torch.overrides._pop_mode_temporarily(), none:
                return compiled(*args, **named)

        return call

    return compile


def _for_torch() -> dict[str, Any]:
    return {
        "device": _Device,
        "compile": _compile(torch.compile),
        "get_device_module": functools.cache(lambda device=None: torch.cuda),
        "Stream": _streams.Stream,
        "Event": _streams.Event,
    }


# --- torch.distributed ----------------------------------------------------------------------------


def _gloo(backend: Any) -> Any:
    """PyTorch's communicator for the CPU in place of those for GPUs."""
    return (
        "gloo" if isinstance(backend, str) and ("nccl" in backend or "cuda" in backend) else backend
    )


def _with_gloo(original: Any) -> Any:
    def replacement(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_gloo(arg) for arg in args)
        kwargs["backend"] = _gloo(kwargs["backend"]) if "backend" in kwargs else None
        kwargs |= {name: None for name in ("device_id", "pg_options") if name in kwargs}
        if kwargs["backend"] is None:
            del kwargs["backend"]
        return original(*args, **kwargs)

    return replacement


def _gather_bytes(tensor: torch.Tensor, size: int, group: str) -> torch.Tensor:
    """gloo has no elements of fp8, which it gathers as it does bytes."""
    operator = torch.ops._c10d_functional.all_gather_into_tensor.default
    small = tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    plain = tensor.view(torch.uint8) if small else tensor
    return operator.redispatch(keys, plain, size, group).view(tensor.dtype)


def _default_to_gloo(original: Any) -> Any:
    """Without a name PyTorch takes what fits the accelerator."""
    replacement = _with_gloo(original)

    def init(*args: Any, **kwargs: Any) -> Any:
        if not args and kwargs.get("backend") is None:
            kwargs["backend"] = "gloo"
        return replacement(*args, **kwargs)

    return init


def _mesh(original: Any) -> Any:
    return lambda device_type, *args, **kwargs: original(on_cpu(device_type), *args, **kwargs)


def _p2p(original: Any) -> Any:
    return lambda size, stride, dtype, device, *args, **kwargs: original(
        size, stride, dtype, on_cpu(device), *args, **kwargs
    )


def _of_cuda(original: Any) -> Any:
    """Symmetric memory seems to be the GPUs', all of them, and not the CPU's."""
    return lambda kind, *_: kind == DeviceType.CUDA and original(DeviceType.CPU, 0)


def _links(kind: DeviceType, connection: str, cards: _Cards) -> Any:
    """Each GPU reaches each."""
    matrix = [[int(row != column) for column in range(cards.count)] for row in range(cards.count)]
    return types.SimpleNamespace(device_type=kind, connection_type=connection, matrix=matrix)


def _method(original: Any) -> Any:
    call = _graphs.later(original)
    return lambda self, *args, **kwargs: call(self, *args, **kwargs)


class _Backend:
    """The name of the backend that a GPU has, PyTorch's default or the one that was set."""

    def __init__(self) -> None:
        self.name = "CUDA"
        self.real = symm_mem.get_backend

    def get(self, device: Any) -> str | None:
        return self.name if (found := self.real(device)) == "SYMMEM" else found

    def set(self, name: str) -> None:
        if name not in ("CUDA", "NCCL", "NVSHMEM"):
            raise RuntimeError(f"SymmMem does not find allocation backend {name}")
        self.name = name


class _Thread:
    """What a thread runs has the mode of the others."""

    @staticmethod
    def run(original: Any) -> Any:
        def run(self: threading.Thread) -> None:
            with _Mode():
                original(self)

        return run


# --- all of it ------------------------------------------------------------------------------------


class _Emulation:
    def __init__(self, devices: int | None) -> None:
        count = devices or int(
            os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "4"))
        )
        self.saved: list[tuple[Any, str, Any]] = []
        self.mode = _Mode()
        cards = _Cards(count)
        for owner, values in (
            (torch.cuda, _for_cuda(cards)),
            (torch.accelerator, _for_accelerator(cards)),
            (torch, _for_torch()),
        ):
            for name, value in values.items():
                self.replace(owner, name, value)
        init = _default_to_gloo(dist.init_process_group)
        for owner in (dist, dist.distributed_c10d):
            self.replace(owner, "init_process_group", init)
        new_group = _with_gloo(dist.distributed_c10d.new_group)
        for owner in (dist, dist.distributed_c10d):
            self.replace(owner, "new_group", new_group)
        mesh = _mesh(dist.device_mesh.init_device_mesh)
        for owner in (dist, dist.device_mesh):
            self.replace(owner, "init_device_mesh", mesh)
        self.replace(
            _SymmetricMemory,
            "empty_strided_p2p",
            staticmethod(_p2p(_SymmetricMemory.empty_strided_p2p)),
        )
        self.replace(
            _SymmetricMemory,
            "has_multicast_support",
            staticmethod(_of_cuda(_SymmetricMemory.has_multicast_support)),
        )
        self.replace(
            torch._C._distributed_c10d,
            "_detect_dma_connectivity",
            lambda kind, connection: _links(kind, connection, cards),
        )
        backend = _Backend()
        self.replace(symm_mem, "get_backend", backend.get)
        self.replace(symm_mem, "set_backend", backend.set)
        for name in ("barrier", "put_signal", "wait_signal"):
            self.replace(_SymmetricMemory, name, _method(getattr(_SymmetricMemory, name)))
        self.replace(threading.Thread, "run", _Thread.run(threading.Thread.run))
        self.kernels = torch.library.Library("_c10d_functional", "IMPL")
        self.kernels.impl("all_gather_into_tensor", _gather_bytes, "CPU")
        self.mode.__enter__()

    def replace(self, owner: Any, name: str, value: Any) -> None:
        self.saved.append((owner, name, vars(owner).get(name, MISSING)))
        setattr(owner, name, value)

    def undo(self) -> None:
        self.mode.__exit__(None, None, None)
        self.kernels._destroy()
        for owner, name, value in reversed(self.saved):
            if value is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


_current: _Emulation | None = None


def is_enabled() -> bool:
    return _current is not None


class _Ending:
    """What enable() gives: as a context manager it ends the emulation."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        disable()


def enable(devices: int | None = None) -> _Ending:
    global _current
    if _current is None:
        _current = _Emulation(devices)
    return _Ending()


def disable() -> None:
    global _current
    if _current is not None:
        _current.undo()
        _current = None

# SPDX-License-Identifier: BSD-3-Clause
"""torch.cuda.CUDAGraph for CPU tensors: what is asked for in a capture is done by replay().

Nothing is computed in a capture, as on a GPU. Views, and memory that is not filled, are made there
once, so that every replay works in the same memory.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

_here = threading.local()
_UNFILLED = {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty"}


def is_capturing() -> bool:
    return getattr(_here, "graph", None) is not None


def later(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which in a capture is put off to each replay. Its result is not used."""

    def call(*args: Any, **kwargs: Any) -> None:
        if is_capturing():
            _here.graph.steps.append(lambda: function(*args, **kwargs))
        else:
            function(*args, **kwargs)

    return call


def _memory_for(operator: Any, args: Any, kwargs: Any) -> Any:
    """Where the results will be: of the shapes that the operator has for tensors without data."""
    to_meta = lambda tensor: torch.empty_strided(  # noqa: E731
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"
    )
    args, kwargs = tree_map_only(torch.Tensor, to_meta, (args, kwargs))
    if "device" in kwargs:
        kwargs["device"] = "meta"
    return tree_map_only(
        torch.Tensor,
        lambda meta: torch.empty_strided(meta.size(), meta.stride(), dtype=meta.dtype),
        operator(*args, **kwargs),
    )


class _Recorder(TorchDispatchMode):
    def __init__(self, steps: list[Callable[[], Any]]) -> None:
        super().__init__()
        self.steps = steps

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        if func.is_view or schema.name in _UNFILLED:
            return func(*args, **kwargs)
        self.steps.append(step := _Step(func, args, kwargs))
        if schema.is_mutable or not schema.returns:
            return step.written()
        step.results = _memory_for(func, args, kwargs)
        return step.results


class _Step:
    def __init__(self, operator: Any, args: Any, kwargs: Any) -> None:
        self.operator, self.args, self.kwargs = operator, args, kwargs
        self.results: Any = None

    def written(self) -> Any:
        """The arguments that the operator returns, those which it writes to."""
        names = [argument.name for argument in self.operator._schema.arguments]
        values = dict(zip(names, self.args)) | self.kwargs
        found = tuple(
            values[argument.name]
            for argument in self.operator._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        count = len(self.operator._schema.returns)
        return None if count == 0 else found[0] if count == 1 else found[:count]

    def __call__(self) -> None:
        results = self.operator(*self.args, **self.kwargs)
        if self.results is not None:
            _copy(self.results, results)


def _copy(to: Any, source: Any) -> None:
    if isinstance(to, torch.Tensor):
        to.copy_(source)
    elif isinstance(to, (list, tuple)):
        for part, value in zip(to, source):
            _copy(part, value)
    elif isinstance(source, torch.ScriptObject) and hasattr(source, "wait"):
        source.wait()  # the work of a process group, which the program awaited in the capture


class CUDAGraph:
    def __init__(self, keep_graph: bool = False) -> None:
        self.steps: list[Callable[[], Any]] = []
        self._recorder: _Recorder | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        if is_capturing():
            raise RuntimeError("symmem_torch: this thread captures a graph already")
        self.reset()
        _here.graph, self._recorder = self, _Recorder(self.steps)
        self._recorder.__enter__()

    def capture_end(self) -> None:
        if self._recorder is None:
            raise RuntimeError("symmem_torch: no capture of this graph has begun")
        self._recorder.__exit__(None, None, None)
        _here.graph = self._recorder = None

    def instantiate(self) -> None:
        pass

    def replay(self) -> None:
        for step in self.steps:
            step()

    def reset(self) -> None:
        self.steps = []

    def pool(self) -> tuple[int, int]:
        return (0, 0)


@contextlib.contextmanager
def graph(cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, **_: Any) -> Iterator[None]:
    cuda_graph.capture_begin(pool)
    try:
        with stream or contextlib.nullcontext():
            yield
    finally:
        cuda_graph.capture_end()

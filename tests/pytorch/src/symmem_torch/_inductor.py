# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile: buffers that Inductor makes in symmetric memory, for CPU tensors.

It lowers to them on every device, but writes their allocation for devices that have an index.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


class _Numbered:
    """A buffer on the CPU as one on a device with an index."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def get_device(self) -> torch.device:
        return torch.device("cpu", 0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def _without_index(original: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    def codegen(self: Any, code: Any) -> None:
        node = self.node
        if node.get_device().type != "cpu":
            original(self, code)
            return
        part = type(code)()
        self.node = _Numbered(node)
        try:
            original(self, part)
        finally:
            self.node = node
        for line in part.getvalue().splitlines():
            code.writeline(line.replace('"cpu:0"', '"cpu"'))

    return codegen


@functools.cache
def install() -> None:
    """Not when the package is imported, for Inductor takes seconds."""
    from torch._inductor import config
    from torch._inductor.codegen.wrapper import AllocateLine

    # What is compiled is small, and the compiler takes longer than it saves.
    config.cpp.simdlen = 1
    config.cpp_cache_precompile_headers = False
    original = getattr(AllocateLine, "_codegen_comm_buffer", None)
    if original is not None:
        AllocateLine._codegen_comm_buffer = _without_index(original)

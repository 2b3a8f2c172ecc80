# SPDX-License-Identifier: BSD-3-Clause
"""The C++ library, which was built for one version of torch and fits that one only."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import pathlib
import types
from typing import Any

import torch

FOLDER = pathlib.Path(__file__).parent / "lib"
HOW_TO_BUILD = (
    "pip install --no-build-isolation --force-reinstall --no-deps path/to/symmem/tests/pytorch"
)


def built_for() -> str:
    """The version of torch that the library was built against."""
    try:
        return (FOLDER / "torch_version").read_text().strip()
    except OSError as error:
        raise ImportError(
            f"symmem_torch is not built: {error}. Build it: {HOW_TO_BUILD}"
        ) from error


def load() -> None:
    version = built_for()
    if version != torch.__version__:
        raise ImportError(
            f"symmem_torch was built against torch {version}, whose interface in C++ may differ "
            f"from that of this torch, {torch.__version__}. Build it again: {HOW_TO_BUILD}"
        )
    try:
        module()
    except ImportError as error:
        raise ImportError(
            f"symmem_torch does not fit this torch, {torch.__version__}: {error}. "
            f"Build it again: {HOW_TO_BUILD}"
        ) from error


@functools.cache
def module() -> types.ModuleType:
    """Loading it loads the library, which registers the allocator and the operators."""
    name = "symmem_torch_methods"
    loader = importlib.machinery.ExtensionFileLoader(name, str(FOLDER / f"{name}.so"))
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(loaded)
    return loaded


def operators() -> Any:
    """What PyTorch's interface has no place for."""
    return torch.ops.symmem

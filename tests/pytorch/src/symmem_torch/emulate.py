# SPDX-License-Identifier: BSD-3-Clause
"""pytest -p symmem_torch.emulate: test files that say "cuda" run on CPU tensors, unchanged.

Processes that tests start are forks of the test process, whatever start method they name: they
begin at once and inherit the emulation, where new ones would import torch for some seconds each.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import os
from typing import Any

import symmem_torch


def _fork_everything() -> None:
    for context in (
        multiprocessing.context.SpawnContext,
        multiprocessing.context.ForkServerContext,
    ):
        context.Process = multiprocessing.context.ForkProcess  # type: ignore[misc,assignment]


def pytest_addoption(parser: Any) -> None:
    parser.addoption(
        "--symmem-devices",
        type=int,
        default=4,
        metavar="N",
        help="how many GPUs the tests see (symmem_torch.emulate)",
    )


def pytest_configure(config: Any) -> None:
    # A thread pool of the parent would be missing in its forks.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    symmem_torch.enable(config.getoption("--symmem-devices"))
    _fork_everything()


def pytest_unconfigure() -> None:
    symmem_torch.disable()

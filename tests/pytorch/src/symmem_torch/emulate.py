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


def _new_ranks_after_a_failure() -> None:
    """PyTorch's classes whose ranks run one test after the other skip all tests after a failure."""
    # Its modules ask for GPUs when they are imported: not before there seem to be some.
    try:
        from torch.testing._internal.common_distributed import MultiProcContinuousTest
    except ImportError:  # of packages that PyTorch's tests want: then no test uses those classes
        return
    original = MultiProcContinuousTest.setUp

    def set_up(self: MultiProcContinuousTest) -> None:
        kind = type(self)
        if kind.poison_pill:
            for process in kind.processes:
                process.kill()
                process.join()
            kind.poison_pill = kind._processes_spawned = False
        original(self)

    MultiProcContinuousTest.setUp = set_up  # type: ignore[method-assign]


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
    _new_ranks_after_a_failure()


def pytest_unconfigure() -> None:
    symmem_torch.disable()

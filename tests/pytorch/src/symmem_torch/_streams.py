# SPDX-License-Identifier: BSD-3-Clause
"""Streams and events for CPU tensors, on which all work is done when the call that asks for it
returns.
"""

from __future__ import annotations

import time
from typing import Any

import torch

CPU = torch.device("cpu")


class Stream:
    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = CPU
        self.priority = priority
        self.stream_id = self.cuda_stream = 0

    def wait_stream(self, stream: Stream) -> None:
        pass

    def wait_event(self, event: Event) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        _entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _entered.pop()


class Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.time_s = 0.0

    def record(self, stream: Stream | None = None) -> None:
        self.time_s = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return 1000 * (end.time_s - self.time_s)


_default = Stream()
_entered: list[Stream] = []


def current_stream(device: Any = None) -> Stream:
    return _entered[-1] if _entered else _default


def default_stream(device: Any = None) -> Stream:
    return _default

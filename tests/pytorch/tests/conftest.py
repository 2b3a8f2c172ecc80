# SPDX-License-Identifier: BSD-3-Clause
"""Every test of this folder is run by 2 and by 4 ranks, or as its marks say.

@pytest.mark.ranks(1)   by worlds of these sizes
@pytest.mark.ends       some ranks end in it, so the next test gets new ones
"""

from __future__ import annotations

import pytest

import symmem_torch  # noqa: F401  (before ranks are forked, so that they have it)
import ranks

_worlds: dict[int, ranks.Ranks] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ranks(*sizes): the world sizes that a test is run with")
    config.addinivalue_line("markers", "ends: ranks end in the test")
    config.addinivalue_line("markers", "here: the test starts its own processes")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("here"):
        return
    mark = metafunc.definition.get_closest_marker("ranks")
    metafunc.fixturenames.append("ranks_of_world")
    metafunc.parametrize(
        "ranks_of_world", mark.args if mark else (2, 4), ids=lambda size: f"{size}-ranks"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("here"):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    size = pyfuncitem.callspec.params["ranks_of_world"]
    world = _worlds.pop(size, None) or ranks.Ranks(size)
    answers = world.run(pyfuncitem.module.__name__, pyfuncitem.function.__name__, arguments)
    ends = pyfuncitem.get_closest_marker("ends")
    bad = [
        f"rank {rank}:\n{text}"
        for rank, text in enumerate(answers)
        if text and not (ends and text.endswith("status 7"))
    ]
    if bad or ends:
        world.stop()
    else:
        _worlds[size] = world
    if bad:
        pytest.fail("\n".join(bad), pytrace=False)
    return True


def pytest_sessionfinish() -> None:
    for world in _worlds.values():
        world.stop()

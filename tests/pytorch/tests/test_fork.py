# SPDX-License-Identifier: BSD-3-Clause
"""In a child of fork nothing touches what is the parent's, and the parent goes on."""

from __future__ import annotations

import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
from support import WORLD, fails, is_symmetric, meet, program, programs, rank

LIMIT_S = 60.0  # of a child, which waits for nobody
REFUSED = "this process is a child of fork"


def in_child(function: Callable[[], Any]) -> str:
    """What a child of fork gets from it, or the text of the exception."""
    here, there = multiprocessing.connection.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            there.send(repr(function()))
        except BaseException as error:
            there.send(str(error))
        os._exit(0)
    there.close()
    try:
        return here.recv() if here.poll(LIMIT_S) else "the child hangs"
    except EOFError:
        return "the child ended"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def is_refused(text: str) -> bool:
    return REFUSED in text and "[NOT_INITIALIZED]" in text and "spawn" in text


def test_a_child_makes_no_symmetric_memory():
    tensor, handle = meet(4)
    store = dist.distributed_c10d._get_default_store()
    dist.barrier()
    keys = store.num_keys()
    for call in (
        lambda: symm_mem.empty(4, device="cpu"),
        lambda: symm_mem.rendezvous(tensor, WORLD),
        lambda: torch.ops.symm_mem._rendezvous(tensor, WORLD),
        lambda: torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", WORLD),
        lambda: torch.ops.symm_mem.nvshmem_put(tensor, 0),
        lambda: torch.ops.symm_mem.memset32_(torch.zeros(4, dtype=torch.uint32), 0, 1, 1),
        lambda: symm_mem.get_symm_mem_workspace(WORLD, 64),
    ):
        text = in_child(call)
        assert is_refused(text), text
    assert store.num_keys() == keys
    text = in_child(lambda: handle.barrier(timeout_ms=100))
    assert "NOT_INITIALIZED" in text and "fork" in text
    dist.barrier()
    handle.barrier()
    meet(8)[1].barrier()


def test_a_child_may_read_and_end():
    tensor, handle = meet(4)
    tensor.fill_(rank())
    handle.barrier()
    buffer = handle.get_buffer(1, (4,), torch.float32)

    def read_and_free() -> list[float]:
        nonlocal tensor, handle, buffer
        sums = [tensor.sum().item(), buffer.sum().item()]
        del tensor, handle, buffer
        return sums

    assert in_child(read_and_free) == repr([4.0 * rank(), 4.0])
    handle.barrier()
    assert buffer.eq(1).all()


def test_a_grandchild():
    meet(4)[1].barrier()
    text = in_child(lambda: in_child(lambda: symm_mem.empty(4, device="cpu")))
    assert is_refused(text), text


def test_a_fork_while_a_thread_waits_for_its_peers():
    """That thread holds what a new group holds until the others come."""
    group = dist.new_group()
    tensor = symm_mem.empty(4, device="cpu")
    name = group.group_name
    thread = threading.Thread(target=lambda: torch.ops.symm_mem._rendezvous(tensor, name))
    if rank() == 0:
        thread.start()
        for _ in range(3):
            text = in_child(lambda: symm_mem.empty(4, device="cpu"))
            assert is_refused(text), text
            text = in_child(lambda: symm_mem.rendezvous(tensor, name))
            assert is_refused(text), text
    dist.barrier()
    if rank() != 0:
        thread.start()
    thread.join()
    symm_mem.rendezvous(tensor, name).barrier()


def test_a_fork_in_the_pool():
    with symmem_torch.use_mem_pool(symm_mem.get_mem_pool("cpu")):
        assert is_symmetric(torch.ones(4))
        text = in_child(lambda: (torch.ones(4).sum().item(), is_symmetric(torch.ones(4))))
        assert text == "(4.0, False)"
        leave = torch.ops.symmem.leave_pool  # as a child does that goes on behind the statement
        text = in_child(lambda: (leave(), fails("has not entered the pool", leave)))
        assert text.startswith("(None, 'symmem: this thread"), text
        assert is_symmetric(torch.ones(4))


@pytest.mark.here
@pytest.mark.parametrize("before", ("used", "unused"))
def test_a_child_leaves_the_parents_connection_alone(tmp_path, before):
    """A TCPStore's connection has one user, or its answers go to the wrong one."""
    folder = tmp_path / before
    folder.mkdir()
    results = programs(
        """
        import os, sys, torch, symmem_torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        rank = int(sys.argv[1])
        first = dist.FileStore(sys.argv[2], 2)
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
            first.set("port", str(store.port))
        else:
            store = dist.TCPStore("127.0.0.1", int(first.get("port")), 2, is_master=False)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        if "/used/" in sys.argv[2]:
            symm_mem.rendezvous(symm_mem.empty(4, device="cpu"), "0").barrier()
        dist.barrier()
        child = os.fork()
        if child == 0:
            for _ in range(500):
                try:
                    symm_mem.empty(4, device="cpu")
                except RuntimeError as error:
                    if "child of fork" not in str(error):
                        print(error, file=sys.stderr, flush=True)
                        os._exit(1)
                else:
                    os._exit(2)
            os._exit(0)
        for turn in range(200):
            store.set(f"key/{rank}", str(turn))
            assert store.get(f"key/{rank}") == str(turn).encode()
        for _ in range(20):
            symm_mem.rendezvous(symm_mem.empty(64, device="cpu"), "0").barrier()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        dist.barrier()
        raise SystemExit(status)
        """,
        folder,
    )
    assert [result.returncode for result in results] == [0, 0], [one.stderr for one in results]


OWN_GROUP = """
    import os, sys, tempfile, torch, symmem_torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem
    if sys.argv[1] == "group":  # one whose end no thread waits for
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    early = symm_mem.empty(4, device="cpu")
    file = tempfile.mktemp()

    def work(rank):
        if dist.is_initialized():
            dist.destroy_process_group()
        store = dist.FileStore(file, 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        tensor = symm_mem.empty(4, device="cpu")
        handle = symm_mem.rendezvous(tensor, "0")
        tensor.fill_(rank)
        handle.barrier()
        assert handle.get_buffer(1 - rank, (4,), torch.float32).eq(1 - rank).all()
        assert torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", "0").eq(1).all()
        try:
            symm_mem.rendezvous(early, "0")
        except RuntimeError as error:
            assert "child of fork" in str(error), error
        else:
            raise SystemExit("no exception")
        handle.barrier()

    children = []
    for rank in range(2):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                work(rank)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert statuses == [0, 0], statuses
    assert symm_mem.empty(4, device="cpu").eq(0).all() and early.eq(0).all()
"""


@pytest.mark.here
@pytest.mark.parametrize("parent", ("group", "no group"))
def test_a_childs_own_group(parent):
    result = program(OWN_GROUP, parent)
    assert result.returncode == 0, result.stderr

# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong is a Python exception that says what to do, never a crash or a hang."""

from __future__ import annotations

import os
import pathlib
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
from support import WORLD, fails, meet, program, programs, rank, size


def test_timeout_is_an_exception_with_the_record():
    _, handle = meet(4)
    if rank() == 0:
        text = fails("TIMEOUT", handle.barrier, timeout_ms=300)
        assert "symmem barrier" in text and "missing ranks 1" in text and "channel 0" in text
        assert symmem_torch.status(handle) == "TIMEOUT"
        fails("POISONED", handle.barrier, timeout_ms=300)
    dist.barrier()
    symmem_torch.reset(handle)
    assert symmem_torch.status(handle) == "OK"
    handle.barrier()


def test_missing_signal_and_unconsumed_signal():
    _, handle = meet(4)
    if rank() == 0:
        fails("TIMEOUT.*missing ranks 1", handle.wait_signal, 1, timeout_ms=200)
    dist.barrier()
    symmem_torch.reset(handle)
    if rank() == 0:
        handle.put_signal(1, timeout_ms=200)
        fails("TIMEOUT", handle.put_signal, 1, timeout_ms=200)
    dist.barrier()
    symmem_torch.reset(handle)
    handle.barrier()


def test_wrong_channel():
    _, handle = meet(4)
    # Who waits longest poisons the handle, which ends the others' waits.
    fails(f"(TIMEOUT|POISONED).*channel {rank()}", handle.barrier, channel=rank(), timeout_ms=300)
    dist.barrier()
    symmem_torch.reset(handle)
    handle.barrier()


def test_quantized_dtypes():
    """Such a tensor needs a scale, without which PyTorch's print of it is a crash."""
    for dtype in (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4):
        text = fails("needs a scale", symm_mem.empty, 4, dtype=dtype, device="cpu")
        assert str(dtype) in text and "INVALID_ARGUMENT" in text


def test_sizes_that_differ():
    tensor = symm_mem.empty(64 if rank() == 0 else 128, device="cpu")
    fails("MISMATCH", symm_mem.rendezvous, tensor, WORLD)
    meet(4)[1].barrier()


@pytest.mark.ends
def test_dead_peer():
    _, handle = meet(4)
    dist.barrier()
    if rank() == 1:
        os._exit(7)
    begin = time.monotonic()
    fails("PEER_LOST", handle.barrier, timeout_ms=60000)
    assert time.monotonic() - begin < 30


@pytest.mark.ends
def test_dead_peer_of_a_group_that_has_not_met():
    group = dist.new_group(list(range(size())), timeout=timedelta(seconds=20))
    _, handle = meet(4)
    tensor = symm_mem.empty(4, device="cpu")
    dist.barrier()
    if rank() == 1:
        os._exit(7)
    begin = time.monotonic()
    fails("PEER_LOST", symm_mem.rendezvous, tensor, group)
    assert time.monotonic() - begin < 10


def test_group_that_is_not_there():
    tensor = symm_mem.empty(4, device="cpu")
    fails(
        'there is no process group "nowhere".*init_process_group',
        symm_mem.rendezvous,
        tensor,
        "nowhere",
    )
    tensor = torch._C._distributed_c10d._SymmetricMemory.empty_strided_p2p(
        (4,), (1,), torch.float32, torch.device("cpu")
    )
    fails("group_name.*neither", torch._C._distributed_c10d._SymmetricMemory.rendezvous, tensor)


def test_operands():
    ops = torch.ops.symm_mem
    tensor, _ = meet((8, 8))
    fails("contiguous", ops.one_shot_all_reduce, tensor.t()[:, :4], "sum", WORLD)
    fails("only sum", ops.one_shot_all_reduce, tensor, "max", WORLD)
    fails(
        "output size must match", ops.one_shot_all_reduce_out, tensor, "sum", WORLD, torch.empty(3)
    )
    fails(
        "dtype",
        ops.two_shot_all_reduce_out,
        tensor,
        "sum",
        WORLD,
        torch.empty(8, 8, dtype=torch.int32),
    )
    fails(
        "smaller than symm buffer",
        ops.one_shot_all_reduce_copy,
        tensor,
        torch.ones(65),
        "sum",
        WORLD,
    )
    fails(
        "root must be in",
        ops.multimem_one_shot_reduce_out,
        tensor,
        "sum",
        size(),
        WORLD,
        torch.empty(8, 8),
    )
    fails("root|OUT_OF_RANGE", ops.nvshmem_broadcast, tensor, size(), WORLD)
    fails("OUT_OF_RANGE", ops.nvshmem_put, tensor, size())
    fails(
        "must be a CPU tensor|meta|Meta",
        ops.one_shot_all_reduce_out,
        tensor,
        "sum",
        WORLD,
        torch.empty(8, 8, device="meta"),
    )
    small, _ = meet(8, dtype=torch.float8_e4m3fn)
    fails("cannot compute with elements of Float8", ops.one_shot_all_reduce, small, "sum", WORLD)


def test_tensors_that_are_not_symmetric():
    plain, group = torch.ones(4), WORLD
    for name, arguments in (
        ("one_shot_all_reduce", (plain, "sum", group)),
        ("two_shot_all_reduce_", (plain, "sum", group)),
        ("multimem_all_reduce_", (plain, "sum", group)),
        ("nvshmem_broadcast", (plain, 0, group)),
        ("nvshmem_all_to_all", (plain, torch.ones(4), group)),
        ("nvshmem_put", (plain, 0)),
        ("nccl_get", (plain, 0)),
    ):
        fails("must be allocated with", getattr(torch.ops.symm_mem, name), *arguments)
    assert symm_mem.rendezvous(plain, group) is None
    fails("stream_write|uint32", torch.ops.symm_mem.stream_write_value32_, plain, 0, 1)


def test_group_without_a_store():
    group = dist.ProcessGroup(rank(), size())
    torch._C._distributed_c10d._register_process_group("storeless", group)
    try:
        tensor = symm_mem.empty(4, device="cpu")
        fails(
            '"storeless" has no store.*init_process_group or new_group',
            symm_mem.rendezvous,
            tensor,
            "storeless",
        )
    finally:
        torch._C._distributed_c10d._unregister_process_group("storeless")
    meet(4)[1].barrier()


@pytest.mark.here
def test_store_that_fails(tmp_path):
    """The exception has the text of the store's own."""
    results = programs(
        """
        import sys, torch.distributed as dist, torch.distributed._symmetric_memory as symm_mem
        import symmem_torch

        class Store(dist.Store):
            def __init__(self, inner):
                super().__init__()
                self.inner, self.ends = inner, False
            def call(self, name, *arguments):
                if self.ends:
                    raise RuntimeError("its server has gone")
                return getattr(self.inner, name)(*arguments)
            def set(self, *arguments): return self.call("set", *arguments)
            def get(self, *arguments): return self.call("get", *arguments)
            def add(self, *arguments): return self.call("add", *arguments)
            def check(self, *arguments): return self.call("check", *arguments)
            def wait(self, *arguments): return self.call("wait", *arguments)
            def delete_key(self, *arguments): return self.call("delete_key", *arguments)
            def compare_set(self, *arguments): return self.call("compare_set", *arguments)
            def set_timeout(self, limit): self.inner.set_timeout(limit)

        rank = int(sys.argv[1])
        store = Store(dist.FileStore(sys.argv[2], 2))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        tensor = symm_mem.empty(4, device="cpu")
        store.ends = True
        try:
            symm_mem.rendezvous(tensor, "0")
        except RuntimeError as error:
            print(error)
        """,
        tmp_path,
    )
    for result in results:
        assert "its server has gone" in result.stdout, result.stdout + result.stderr


def test_group_that_is_larger_than_the_world():
    group = dist.ProcessGroup(rank(), size() + 1)
    torch._C._distributed_c10d._register_process_group("larger", group)
    try:
        tensor = symm_mem.empty(4, device="cpu")
        fails(
            f'"larger" has {size() + 1} ranks, and the world .* {size()}',
            symm_mem.rendezvous,
            tensor,
            "larger",
        )
    finally:
        torch._C._distributed_c10d._unregister_process_group("larger")


def test_overlapping_output():
    tensor, _ = meet(64)
    fails(
        "INVALID_ARGUMENT", torch.ops.symm_mem.one_shot_all_reduce_out, tensor, "sum", WORLD, tensor
    )


def test_second_backend_set_late():
    meet(4)
    fails("does not find|can not be changed|NCCL|CUDA", symm_mem.set_backend, "no such backend")
    assert symm_mem.get_backend("cpu") == "SYMMEM"


def test_multicast_switched_off(monkeypatch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        tensor, handle = meet(16)
        assert handle.multicast_ptr == 0
        fails(
            "multicast support is required",
            torch.ops.symm_mem.multimem_all_reduce_,
            tensor,
            "sum",
            WORLD,
        )
        dist.barrier()


class _Symmetric(torch.utils.data.Dataset):
    """Items that a worker wrongly makes in symmetric memory."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return symm_mem.empty(4, device="cpu")


def test_worker_of_a_data_loader():
    tensor, handle = meet(4)
    tensor.fill_(5)
    loader = torch.utils.data.DataLoader(
        _Symmetric(), num_workers=1, multiprocessing_context="fork"
    )
    fails("symmem", list, loader)
    handle.barrier()
    assert (
        handle.get_buffer(1, (4,), torch.float32).eq(5).all()
    )  # the worker's end took nothing away
    handle.barrier()


# --- whole programs -------------------------------------------------------------------------------


@pytest.mark.here
def test_without_a_process_group():
    result = program("""
        import torch, symmem_torch
        import torch.distributed._symmetric_memory as symm_mem
        tensor = symm_mem.empty(4, device="cpu")
        assert tensor.eq(0).all()
        try:
            symm_mem.rendezvous(tensor, "0")
        except RuntimeError as error:
            assert "init_process_group" in str(error), error
        else:
            raise SystemExit("no exception")
    """)
    assert result.returncode == 0, result.stderr


@pytest.mark.here
def test_memory_of_before_the_process_group():
    result = program("""
        import os, tempfile, torch, symmem_torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        early = symm_mem.empty(4, device="cpu")
        for _ in range(2):
            store = dist.FileStore(tempfile.mktemp(), 1)
            dist.init_process_group("gloo", store=store, rank=0, world_size=1)
            try:
                symm_mem.rendezvous(early, "0")
            except RuntimeError as error:
                assert "Allocate it again" in str(error), error
            else:
                raise SystemExit("no exception")
            early = symm_mem.empty(4, device="cpu")
            symm_mem.rendezvous(early, "0").barrier()
            dist.destroy_process_group()
        # The end of the process, with memory and without a word.
    """)
    assert result.returncode == 0 and "rror" not in result.stderr, result.stderr


@pytest.mark.here
def test_signal_that_does_not_come():
    result = program("""
        import datetime, tempfile, torch, symmem_torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        limit = datetime.timedelta(seconds=1)
        store = dist.FileStore(tempfile.mktemp(), 1)
        store.set_timeout(limit)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=limit)
        tensor = symm_mem.empty(4, dtype=torch.int64, device="cpu")
        symm_mem.rendezvous(tensor, "0").barrier()
        for wait, text in (
            (
                lambda: torch.ops.symm_mem.nccl_wait_for_signal(tensor, 1),
                "the signal is 0 and not 1 [TIMEOUT, group 0",
            ),
            (
                lambda: torch.ops.symm_mem.nvshmem_wait_for_signal(tensor, 1, 0),
                "the word was 0, awaited was == 1 [TIMEOUT, group 0",
            ),
        ):
            try:
                wait()
            except RuntimeError as error:
                assert text in str(error), error
            else:
                raise SystemExit("no exception")
    """)
    assert result.returncode == 0, result.stderr


@pytest.mark.here
def test_end_without_destroy(tmp_path):
    """A rank that ends with memory, handles and groups ends well, and none waits for another."""
    results = programs(
        """
        import sys, torch, symmem_torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem
        rank = int(sys.argv[1])
        store = dist.FileStore(sys.argv[2], 2)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        tensor = symm_mem.empty(4, device="cpu")
        handle = symm_mem.rendezvous(tensor, "0")
        handle.barrier()
        with symmem_torch.use_mem_pool(symm_mem.get_mem_pool("cpu")):
            pooled = torch.ones(8)
        torch.ops.symm_mem.one_shot_all_reduce(pooled, "sum", "0")
        dist.barrier()
        if rank == 1:
            raise SystemExit(3)
        torch.distributed._kept = (tensor, handle, pooled)  # until the interpreter's end
        """,
        tmp_path,
    )
    errors = [result.stderr for result in results]
    assert [result.returncode for result in results] == [0, 3], errors
    assert not any("rror" in text or "egmentation" in text for text in errors), errors


def other_package(folder: pathlib.Path, version: str) -> None:
    """The package with a library that it was not built with."""
    package = folder / "symmem_torch"
    (package / "lib").mkdir(parents=True)
    source = pathlib.Path(symmem_torch.__file__).parent
    for file in source.glob("*.py"):
        (package / file.name).symlink_to(file.resolve())
    (package / "lib" / "torch_version").write_text(version + "\n")


@pytest.mark.here
def test_library_that_does_not_fit(tmp_path):
    other_package(tmp_path, torch.__version__)
    (tmp_path / "symmem_torch" / "lib" / "symmem_torch_methods.so").write_text("no library")
    result = program("import symmem_torch", path=str(tmp_path))
    assert result.returncode == 1 and "does not fit this torch" in result.stderr, result.stderr
    assert "pip install" in result.stderr


@pytest.mark.here
def test_another_torch(tmp_path):
    other_package(tmp_path, "2.10.0")
    result = program("import symmem_torch", path=str(tmp_path))
    assert (
        result.returncode == 1 and "was built against torch 2.10.0" in result.stderr
    ), result.stderr
    assert "pip install" in result.stderr

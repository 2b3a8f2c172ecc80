# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong is a Python exception that says what to do, never a crash or a hang."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
from support import WORLD, fails, meet, rank, size


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


def program(text: str, *, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RANK", "WORLD", "LOCAL"))
    }
    folders = [path or "", str(pathlib.Path(symmem_torch.__file__).parents[1])]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


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
def test_another_torch(tmp_path):
    package = tmp_path / "symmem_torch"
    package.mkdir()
    source = pathlib.Path(symmem_torch.__file__).parent
    for file in source.glob("*.py"):
        (package / file.name).symlink_to(file.resolve())
    (package / "lib").mkdir()
    (package / "lib" / "torch_version").write_text("2.10.0\n")
    result = program("import symmem_torch", path=str(tmp_path))
    assert (
        result.returncode == 1 and "was built against torch 2.10.0" in result.stderr
    ), result.stderr
    assert "pip install" in result.stderr

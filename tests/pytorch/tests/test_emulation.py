# SPDX-License-Identifier: BSD-3-Clause
"""Code that says "cuda", on CPU tensors."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import os
import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import symmem_torch
from support import WORLD, rank, size


def test_tensors_and_devices():
    with symmem_torch.enable():
        assert torch.cuda.is_available() and torch.cuda.device_count() == size()
        device = torch.device(f"cuda:{rank()}")
        torch.cuda.set_device(rank())
        made = [
            torch.ones(3, device=device),
            torch.ones(3, device="cuda"),
            torch.ones(3).cuda(),
            torch.ones(3).to("cuda"),
            torch.ones(3).to(device=device),
            torch.zeros(2).new_ones(3, device=device),
            torch.ones(3).to(rank()),
        ]
        assert all(tensor.device == device == torch.device("cuda") for tensor in made)
        assert isinstance(device, torch.device) and torch.cuda.current_device() == rank()
        found: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: found.append(torch.ones(1, device="cuda")))
        thread.start()
        thread.join()
        assert found
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            event = torch.cuda.Event()
            event.record()
        torch.cuda.current_stream().wait_stream(stream)
        event.synchronize()
    assert not torch.cuda.is_available() and not symmem_torch.enabled()
    assert torch.device("cuda:1").type == "cuda"


def test_symmetric_memory():
    with symmem_torch.enable():
        tensor = symm_mem.empty(64, device=f"cuda:{rank()}").fill_(rank())
        group = dist.new_group(list(range(size())), backend="nccl")
        handle = symm_mem.rendezvous(tensor, group)
        handle.barrier()
        out = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", group.group_name)
        assert out.eq(sum(range(size()))).all()
        with torch.cuda.use_mem_pool(symm_mem.get_mem_pool(torch.device("cuda"))):
            pooled = torch.ones(8, device="cuda")
        assert torch.ops.symm_mem.one_shot_all_reduce(pooled, "sum", WORLD).eq(size()).all()
        workspace = symm_mem.get_symm_mem_workspace(WORLD, 256)
        workspace.barrier()


USERS_FILE = """
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.multiprocessing as mp


def body(rank, size, file):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{file}", rank=rank, world_size=size)
    tensor = symm_mem.empty(1024, device="cuda").fill_(rank + 1)
    handle = symm_mem.rendezvous(tensor, dist.group.WORLD)
    handle.barrier()
    peer = handle.get_buffer((rank + 1) % size, (1024,), torch.float32)
    assert peer.eq((rank + 1) % size + 1).all()
    handle.barrier()
    out = torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", "0")
    torch.cuda.synchronize()
    assert out.eq(size * (size + 1) / 2).all()
    dist.destroy_process_group()


def test_all_reduce(tmp_path):
    size = torch.cuda.device_count()
    assert size == 3
    mp.spawn(body, args=(size, tmp_path / "store"), nprocs=size)
"""


@pytest.mark.here
def test_users_file_with_the_plugin(tmp_path):
    file = tmp_path / "test_of_a_user.py"
    file.write_text(USERS_FILE)
    path = pathlib.Path(symmem_torch.__file__).parents[1]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "symmem_torch.emulate",
            "--symmem-devices",
            "3",
            str(file),
        ],
        env=os.environ | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stdout + result.stderr

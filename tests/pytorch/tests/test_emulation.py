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
import torch.distributed._functional_collectives as funcol
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


def test_captured_graph():
    with symmem_torch.enable():
        tensor = symm_mem.empty(16, device="cuda")
        handle = symm_mem.rendezvous(tensor, WORLD)
        count = torch.zeros(1, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            tensor.copy_(count.add_(1).expand(16) * (rank() + 1))
            handle.barrier()
            out = torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", WORLD)[4:]
            handle.barrier()
        assert count.eq(0).all() and tensor.eq(0).all()  # nothing was done yet
        for replay in (1, 2):
            graph.replay()
            assert out.shape == (12,) and out.eq(replay * size() * (size() + 1) / 2).all()
        with pytest.raises(RuntimeError, match="captures a graph already"):
            with torch.cuda.graph(graph), torch.cuda.graph(torch.cuda.CUDAGraph()):
                pass
        assert not torch.cuda.is_current_stream_capturing()


def test_captured_collective_of_the_process_group():
    with symmem_torch.enable():
        tensor = torch.zeros(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dist.all_reduce(tensor.add_(rank() + 1))
            tensor.mul_(2)
        assert tensor.eq(0).all()
        expected = 0
        for _ in range(2):
            graph.replay()
            expected = 2 * (size() * expected + size() * (size() + 1) // 2)
            assert tensor.eq(expected).all()


def test_functional_collectives():
    with symmem_torch.enable():
        tensor = symm_mem.empty(2 * size(), device="cuda").fill_(rank() + 1)
        symm_mem.rendezvous(tensor, WORLD)
        total = size() * (size() + 1) / 2
        assert funcol.all_reduce(tensor, "sum", WORLD).eq(total).all()
        gathered = funcol.all_gather_tensor(tensor, 0, WORLD)
        assert gathered.equal(torch.arange(1.0, size() + 1).repeat_interleave(2 * size()))
        assert funcol.reduce_scatter_tensor(tensor, "sum", 0, WORLD).equal(torch.full((2,), total))


@pytest.mark.ranks(2)
def test_compiled_all_reduce():
    """Inductor makes the all-reduce of a small buffer a one-shot one, in symmetric memory. A
    product needs no compiler of C++, which would take most of a minute.
    """
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache, run_and_get_code

    def model(tensor):
        tensor = torch.ops._c10d_functional.all_reduce(tensor @ tensor, "sum", WORLD)
        return torch.ops._c10d_functional.wait_tensor(tensor)

    with symmem_torch.enable(), fresh_cache(), config.patch("_collective.auto_select", True):
        symm_mem.enable_symm_mem_for_group(WORLD)  # before 2.12 Inductor asks for that
        tensor = torch.eye(4, device="cuda").mul_(rank() + 1)
        found, codes = run_and_get_code(torch.compile(model, fullgraph=True), tensor)
        squares = sum((rank + 1) ** 2 for rank in range(size()))
        assert found.equal(squares * torch.eye(4))
        assert any("one_shot_all_reduce" in code for code in codes)


def test_what_a_gpu_answers():
    with symmem_torch.enable():
        kinds = torch._C._autograd.DeviceType
        queries = torch._C._distributed_c10d
        assert queries._SymmetricMemory.has_multicast_support(kinds.CUDA, 0)
        assert not queries._SymmetricMemory.has_multicast_support(kinds.CPU, 0)
        if hasattr(queries, "_detect_dma_connectivity"):
            assert len(queries._detect_dma_connectivity(kinds.CUDA, "nvlink").matrix) == size()
        assert symm_mem.get_backend("cuda") == "CUDA"
        symm_mem.set_backend("NCCL")
        assert symm_mem.get_backend("cuda") == "NCCL"
        begin, end = torch.cuda.Event(), torch.cuda.Event()
        begin.record()
        torch.cuda._sleep(2_000_000)
        end.record()
        assert begin.elapsed_time(end) >= 2
    assert symm_mem.get_backend("cpu") == "SYMMEM"


def test_scaled_products():
    with symmem_torch.enable():
        shard = torch.full((4, 32), rank() + 1.0, device="cuda").to(torch.float8_e4m3fn)
        factor = torch.eye(32, device="cuda").to(torch.float8_e4m3fn).t()
        one = torch.tensor(1.0, device="cuda")
        gather = torch.ops.symm_mem.fused_all_gather_scaled_matmul
        whole, (out,) = gather(
            shard, [factor], one, [one], 0, WORLD, [None], [None], [torch.bfloat16], [False]
        )
        plain = torch.ops._c10d_functional.all_gather_into_tensor(shard, size(), WORLD)
        plain = torch.ops._c10d_functional.wait_tensor(plain)
        expected = torch.arange(1.0, size() + 1).repeat_interleave(4).view(-1, 1).expand(-1, 32)
        assert all(value.float().equal(expected) for value in (whole, plain, out))


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

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A rank of gpu_fused.py: what PyTorch has for fused products, as fused-shapes measures its own.

torch    its asynchronous tensor parallelism, torch.ops.symm_mem.fused_...
nccl     an all-gather or a reduce-scatter of NCCL's, and one product
scheme   the least that hides a transfer: two products, a copy engine on a second stream, two signals
         at the beginning and two at the end; shards lie in symmetric memory already

A line on rank 0's standard input asks for a round, "round", or for what may not work, "captured":
PyTorch's own in a graph. Never with NVLink multicast.
"""

import itertools
import json
import os
import statistics
import sys
import time
from datetime import timedelta

os.environ.update(TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NCCL_NVLS_ENABLE="0", NVSHMEM_DISABLE_NVLS="1")

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

SHAPES = [(4096, 8192, 8192), (8192, 8192, 28672), (2048, 4096, 14336)]
CALLS, REPEATS, WARM = 10, 5, 4
PAUSE = timedelta(seconds=300)

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
devices = torch.cuda.device_count()
device = torch.device("cuda", rank % devices)
torch.cuda.set_device(device)
if devices >= ranks:
    dist.init_process_group("nccl", device_id=device)
else:  # NCCL takes no two ranks on a device
    dist.init_process_group("gloo")
group = dist.group.WORLD.group_name
stream, second = torch.cuda.Stream(), torch.cuda.Stream()
ops = torch.ops.symm_mem


def say(line):
    """At once, for ranks share the pipe."""
    os.write(1, (json.dumps(line) + "\n").encode())


def noise(rows, columns, where=None):
    made = torch.randint(-8, 9, (rows, columns), device=device).to(torch.bfloat16) / 8
    return made if where is None else where.copy_(made)


def symmetric(rows, columns):
    tensor = symm_mem.empty(rows, columns, dtype=torch.bfloat16, device=device)
    return tensor, symm_mem.rendezvous(tensor, group)


class Shape:
    """The matrices of one shape, and every way to its two products."""

    def __init__(self, m, k, n):
        self.m, self.k, self.n = m, k, n
        self.rows, self.columns = m // ranks, n // ranks
        self.shard, self.shard_handle = symmetric(self.rows, k)
        noise(self.rows, k, self.shard)
        self.arriving, self.arriving_handle = symmetric(self.rows, k)
        self.b, self.a, self.b2 = noise(k, self.columns), noise(m, self.columns), noise(self.columns, k)
        new = lambda *shape: torch.empty(*shape, device=device, dtype=torch.bfloat16)
        self.full, self.out = new(m, k), new(m, self.columns)
        self.parts, self.part, self.there = new(m, k), new(self.rows, k), new(self.rows, k)

    def gather_torch(self):
        ops.fused_all_gather_matmul(self.shard, [self.b], 0, group, return_A=False)

    def scatter_torch(self):
        ops.fused_matmul_reduce_scatter(self.a, self.b2, "sum", 0, group)

    def gather_nccl(self):
        dist.all_gather_into_tensor(self.full, self.shard)
        torch.mm(self.full, self.b, out=self.out)

    def scatter_nccl(self):
        torch.mm(self.a, self.b2, out=self.parts)
        dist.reduce_scatter_tensor(self.part, self.parts)

    # Two ranks: one peer.

    def of(self, tensor, who):
        return tensor[who * self.rows : (who + 1) * self.rows]

    def gather_scheme(self):
        peer, handle = 1 - rank, self.shard_handle
        theirs = handle.get_buffer(peer, (self.rows, self.k), torch.bfloat16)
        handle.put_signal(peer, 0)
        second.wait_stream(stream)
        with torch.cuda.stream(second):
            handle.wait_signal(peer, 0)
            self.there.copy_(theirs)
        torch.mm(self.shard, self.b, out=self.of(self.out, rank))
        stream.wait_stream(second)
        torch.mm(self.there, self.b, out=self.of(self.out, peer))
        handle.put_signal(peer, 1)
        handle.wait_signal(peer, 1)

    def scatter_scheme(self):
        peer, handle = 1 - rank, self.arriving_handle
        theirs = handle.get_buffer(peer, (self.rows, self.k), torch.bfloat16)
        torch.mm(self.of(self.a, peer), self.b2, out=self.of(self.parts, peer))
        second.wait_stream(stream)
        with torch.cuda.stream(second):
            theirs.copy_(self.of(self.parts, peer))
            handle.put_signal(peer, 2)
        own = self.of(self.parts, rank)
        torch.mm(self.of(self.a, rank), self.b2, out=own)
        handle.wait_signal(peer, 2)
        torch.add(own, self.arriving, out=self.part)
        stream.wait_stream(second)
        handle.put_signal(peer, 3)
        handle.wait_signal(peer, 3)

    def check_schemes(self):
        """That they compute what NCCL's way computes."""
        for scheme, plain, result in (
            (self.gather_scheme, self.gather_nccl, self.out),
            (self.scatter_scheme, self.scatter_nccl, self.part),
        ):
            plain()
            wanted = result.clone()
            result.zero_()
            dist.barrier()
            scheme()
            torch.cuda.synchronize()
            if not torch.allclose(result, wanted, rtol=0.02, atol=1):
                raise RuntimeError(f"{scheme.__name__} is wrong")
            dist.barrier()


def in_a_row(run, count):
    for _ in range(count):
        run()


def captured(run):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        in_a_row(run, CALLS)
    return graph.replay


def measure(run, row):
    time.sleep(0.2)  # a device that has just worked hard has a lower clock
    times = []
    for repeat in range(-1, REPEATS):
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        run()
        begin.record(stream)
        row()
        end.record(stream)
        torch.cuda.synchronize()
        if repeat >= 0:
            times.append(begin.elapsed_time(end) * 1000 / CALLS)
    return statistics.median(times)


def ways(shape):
    sides = ["torch"] + (["nccl"] if devices >= ranks else []) + (["scheme"] if ranks == 2 else [])
    for op, stem in (("fused_all_gather_matmul", "gather"), ("fused_matmul_reduce_scatter", "scatter")):
        for side in sides:
            yield op, side, getattr(shape, f"{stem}_{side}")


def one_round(shapes, graphs, what):
    for shape in shapes:
        for op, side, run in ways(shape):
            for way in ("eager", "graph"):
                if (side == "torch" and way == "graph") != (what == "captured"):
                    continue
                key = (shape, op, side)
                line = {"op": op, "m": shape.m, "k": shape.k, "n": shape.n, "way": way, "side": side, "rank": rank}
                try:
                    if way == "graph" and key not in graphs:
                        graphs[key] = captured(run)
                    row = graphs[key] if way == "graph" else lambda: in_a_row(run, CALLS)
                    line["us"] = measure(run, row)
                except RuntimeError as error:
                    line["error"] = str(error).splitlines()[0]
                say(line)


def main():
    store = dist.distributed_c10d._get_default_store()
    with torch.cuda.stream(stream):
        shapes, graphs = [Shape(*shape) for shape in SHAPES], {}
        for shape in shapes:
            for _, _, run in ways(shape):
                in_a_row(run, WARM)
            if ranks == 2:
                shape.check_schemes()
        torch.cuda.synchronize()
        if rank == 0:
            say({"about": f"PyTorch {torch.__version__}", "nccl": ".".join(map(str, torch.cuda.nccl.version()))})
        for number in itertools.count():
            if rank == 0:
                what = sys.stdin.readline().strip()
                store.set(f"round {number}", what)
            else:
                store.wait([f"round {number}"], PAUSE)
                what = store.get(f"round {number}").decode()
            if not what:
                break
            one_round(shapes, graphs, what)
            dist.barrier()
            torch.cuda.synchronize()
            if rank == 0:
                say({"done": True})
        dist.barrier()  # or a rank would ask the store of one that is gone
        torch.cuda.synchronize()
    os._exit(0)  # without the process group's own end, which waits for all kinds of things


main()

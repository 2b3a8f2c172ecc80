#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_torch.py --ranks N: PyTorch's symmetric memory and NCCL, asked as peer.py says."""

import os
import sys
import time

os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # or asking for CUDA would start it before the fork

import peer

MOST_BYTES = 512 << 20  # of what NCCL's window has


class Rank:
    """One GPU. What is measured is kept, with its graph, for the next time it is asked for."""

    def __init__(self, rank, ranks, meeting):
        import torch
        import torch.distributed as dist
        import torch.distributed._symmetric_memory as symm_mem

        self.torch, self.dist, self.symm_mem = torch, dist, symm_mem
        self.rank, self.ranks = rank, ranks
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        dist.init_process_group(
            "nccl",
            init_method=f"tcp://127.0.0.1:{meeting.port}",
            rank=rank,
            world_size=ranks,
            device_id=self.device,
        )
        self.group = dist.group.WORLD
        self.name = self.group.group_name
        self.graphs = {}
        self.window = None
        self.fresh = None
        self.kept = []
        dist.all_reduce(torch.ones(1, device=self.device))  # NCCL connects
        self.pad = symm_mem.empty(1024, dtype=torch.bfloat16, device=self.device)
        self.handle = symm_mem.rendezvous(self.pad, self.name)
        torch.cuda.synchronize()

    # What is called again and again; each checks once what it gives.

    def symmetric(self, nbytes):
        tensor = self.symm_mem.empty(nbytes // 2, dtype=self.torch.bfloat16, device=self.device)
        self.kept.append((tensor, self.symm_mem.rendezvous(tensor, self.name)))
        return tensor

    def windowed(self, nbytes, before=0):
        """A part of memory that NCCL has as a symmetric window, behind another one."""
        if self.window is None:
            backend = self.group._get_backend(self.device)
            pool = self.torch.cuda.MemPool(backend.mem_allocator)
            with self.torch.cuda.use_mem_pool(pool):
                self.window = self.torch.zeros(
                    MOST_BYTES // 2, dtype=self.torch.bfloat16, device=self.device
                )
            backend.register_mem_pool(pool, symm=True)
            self.kept.append(pool)
        return self.window[before // 2 :][: nbytes // 2]

    def plain(self, nbytes):
        return self.torch.zeros(nbytes // 2, dtype=self.torch.bfloat16, device=self.device)

    def make(self, op, nbytes):
        ops = self.torch.ops.symm_mem
        if op == "barrier":
            return lambda: self.handle.barrier(channel=0)
        if op == "one_shot_all_reduce":
            tensor = self.symmetric(nbytes)
            run = lambda: ops.one_shot_all_reduce(tensor, "sum", self.name)
        elif op == "two_shot_all_reduce":
            tensor = self.symmetric(nbytes)
            run = lambda: ops.two_shot_all_reduce_(tensor, "sum", self.name)
        elif op == "nccl_all_reduce":
            tensor = self.plain(nbytes)
            run = lambda: self.reduced(tensor)
        elif op == "nccl_symmetric_all_reduce":
            tensor = self.windowed(nbytes)
            run = lambda: self.reduced(tensor)
        else:
            return self.make_other(op, nbytes)
        self.check(op, tensor, run, [self.ranks * (self.ranks + 1) / 2])
        return run

    def make_other(self, op, nbytes):
        """What is no all-reduce. `nbytes` is what each rank passes in."""
        name = op.removeprefix("nccl_symmetric_").removeprefix("nccl_")
        outputs = {"all_gather": nbytes * self.ranks, "all_to_all": nbytes, "broadcast": nbytes}
        outputs |= dict.fromkeys(("reduce_scatter", "reduce_scatter_out"), nbytes // self.ranks)
        if name not in outputs:
            raise ValueError(f"there is no op {op}")
        if op.startswith("nccl_symmetric_"):
            tensor, out = self.windowed(nbytes), self.windowed(outputs[name], nbytes)
        else:
            tensor = self.symmetric(nbytes) if name == op else self.plain(nbytes)
            out = self.plain(outputs[name])
        dist, each = self.dist, [rank + 1 for rank in range(self.ranks)]
        calls = {
            "all_gather": (lambda: dist.all_gather_into_tensor(out, tensor), each),
            "all_to_all": (lambda: dist.all_to_all_single(out, tensor), each),
            "broadcast": (lambda: dist.broadcast(tensor, 0), [1]),
            "reduce_scatter": (lambda: dist.reduce_scatter_tensor(out, tensor), [sum(each)]),
            "reduce_scatter_out": (
                lambda: self.torch.ops.symm_mem.reduce_scatter_out(tensor, self.name, False, out),
                [sum(each)],
            ),
        }
        call, wanted = calls[name]
        result = tensor if name == "broadcast" else out

        def run():
            call()
            return result

        self.check(op, tensor, run, wanted)
        return run

    def reduced(self, tensor):
        self.dist.all_reduce(tensor)
        return tensor

    def check(self, op, tensor, run, wanted):
        """As many equal parts of the result as there are numbers have these."""
        tensor.fill_(self.rank + 1)
        self.dist.barrier()
        result = run()
        self.torch.cuda.synchronize()
        parts = result.view(len(wanted), -1)
        if not all(bool((part == number).all()) for part, number in zip(parts, wanted)):
            raise RuntimeError(f"{op}: wrong results")
        self.dist.barrier()
        tensor.zero_()  # sums in place stay what they are
        self.dist.barrier()
        self.torch.cuda.synchronize()

    # How long it takes.

    def capture(self, op, nbytes, count):
        torch = self.torch
        run = self.make(op, nbytes)
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(count):
                run()
        graph.replay()
        torch.cuda.synchronize()
        return graph, run  # which has the memory that the graph works on

    def launches(self, op, nbytes, count):
        """Microseconds of each of some launches; the first one synchronizes the ranks."""
        key = (op, nbytes, count)
        if key not in self.graphs:
            self.graphs[key] = self.capture(*key)
        graph, _ = self.graphs[key]
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(peer.LAUNCHES + 1)]
        graph.replay()
        for event in events[:-1]:
            event.record()
            graph.replay()
        events[-1].record()
        self.torch.cuda.synchronize()
        return [1000 * a.elapsed_time(b) for a, b in zip(events, events[1:])]

    def rendezvous(self, nbytes):
        """A buffer from its allocation to its end."""
        tensor = self.symm_mem.empty(nbytes, dtype=self.torch.uint8, device=self.device)
        handle = self.symm_mem.rendezvous(tensor, self.name)
        del handle, tensor

    def rendezvous_alone(self, _):
        self.symm_mem.rendezvous(self.fresh, self.name)

    def allocate(self, nbytes):
        self.fresh = None
        self.fresh = self.symm_mem.empty(nbytes, dtype=self.torch.uint8, device=self.device)

    def calls(self, op, nbytes):
        if op not in ("rendezvous", "rendezvous_alone"):
            raise ValueError(f"{op} is to be captured")
        call = getattr(self, op)
        times = []
        for _ in range(peer.LAUNCHES):
            if op == "rendezvous_alone":
                self.allocate(nbytes)
            self.dist.barrier()
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            call(nbytes)
            times.append(1e6 * (time.perf_counter() - start))
        return times

    def answer(self, op, nbytes, count):
        return self.launches(op, nbytes, count) if count > 0 else self.calls(op, nbytes)

    def about(self):
        torch = self.torch
        return {
            "library": f"PyTorch {torch.__version__}",
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "device": torch.cuda.get_device_name(),
        }


def load():
    """Once, before the ranks are forked; CUDA itself each rank starts for itself."""
    import torch.distributed._symmetric_memory  # noqa: F401


if __name__ == "__main__":
    sys.exit(peer.main(Rank, __doc__, load))

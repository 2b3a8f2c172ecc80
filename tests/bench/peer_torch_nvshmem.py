#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_torch_nvshmem.py --ranks N: what PyTorch has on NVSHMEM's memory alone, asked as peer.py says."""

import sys

import peer
import peer_torch

WIDTH = 256  # elements of a row, where there are as many


class Rank(peer_torch.Rank):
    """A process has one allocator, so this is a program beside peer_torch.py."""

    def __init__(self, rank, ranks, meeting):
        import torch.distributed._symmetric_memory as symm_mem

        symm_mem.set_backend("NVSHMEM")
        super().__init__(rank, ranks, meeting)

    def numbers(self, *shape):
        tensor = self.symm_mem.empty(*shape, dtype=self.torch.int64, device=self.device)
        self.kept.append((tensor, self.symm_mem.rendezvous(tensor, self.name)))
        return tensor

    def make(self, op, nbytes):
        if op != "vdev_all_to_all":
            raise ValueError(f"there is no op {op}")
        elements = nbytes // 2
        width = min(WIDTH, elements // self.ranks)
        rows = elements // width
        tensor = self.symmetric(nbytes).view(rows, width)
        out = self.symmetric(nbytes).view(rows, width)
        splits, places = self.numbers(self.ranks), self.numbers(2, self.ranks)
        splits.fill_(rows // self.ranks)

        def run():
            self.torch.ops.symm_mem.all_to_all_vdev(tensor, out, splits, places, self.name)
            return out

        self.check(op, tensor, run, [rank + 1 for rank in range(self.ranks)])
        return run


if __name__ == "__main__":
    sys.exit(peer.main(Rank, __doc__, peer_torch.load))

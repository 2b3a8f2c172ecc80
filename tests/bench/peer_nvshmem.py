#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""peer_nvshmem.py --ranks N: NVSHMEM's collectives on streams, asked as peer.py says.

It needs the host library alone, as the wheel nvidia-nvshmem-cu13 has it, and the driver.
"""

import ctypes
import importlib.util
import os
import struct
import sys
import time

import peer

for variable, value in (
    ("NVSHMEM_REMOTE_TRANSPORT", "none"),  # one host
    ("NVSHMEM_DISABLE_LOCAL_ONLY_PROXY", "1"),  # a thread that never sleeps
    ("NVSHMEM_DISABLE_NCCL", "1"),  # which has columns of its own
    ("NVSHMEM_SYMMETRIC_SIZE", str(2 << 30)),  # where memory does not grow
):
    os.environ.setdefault(variable, value)

LIBRARY = "libnvshmem_host.so.3"
MOST_BYTES = 512 << 20  # of input and of output
STREAM_NON_BLOCKING = 1
CAPTURE_THREAD_LOCAL = 1
NOT_READY = 600
DRIVER_VERSION = 12000  # whose parameters the calls have
INIT_WITH_UNIQUEID = 1 << 3
TEAM_WORLD = 0

Pointer, Int, Size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


# --- the driver -----------------------------------------------------------------------------------

DRIVER_CALLS = {
    "cuInit": (Int,),
    "cuDeviceGet": (Pointer, Int),
    "cuDeviceGetName": (Pointer, Int, Int),
    "cuDevicePrimaryCtxRetain": (Pointer, Int),
    "cuCtxPushCurrent": (Pointer,),
    "cuStreamCreate": (Pointer, Int),
    "cuStreamQuery": (Pointer,),
    "cuStreamBeginCapture": (Pointer, Int),
    "cuStreamEndCapture": (Pointer, Pointer),
    "cuGraphInstantiateWithFlags": (Pointer, Pointer, ctypes.c_uint64),
    "cuGraphLaunch": (Pointer, Pointer),
    "cuEventCreate": (Pointer, Int),
    "cuEventRecord": (Pointer, Pointer),
    "cuEventElapsedTime": (Pointer, Pointer, Pointer),
    "cuMemcpyAsync": (Pointer, Pointer, Size, Pointer),
}


class Driver:
    """The primary context of a device, and a stream in it. Calls that fail raise."""

    def __init__(self, ordinal):
        find = ctypes.CDLL("libcuda.so.1").cuGetProcAddress_v2
        find.argtypes = (ctypes.c_char_p, Pointer, Int, ctypes.c_uint64, Pointer)
        self.calls = {}
        for name, types in DRIVER_CALLS.items():
            address, found = Pointer(), Int()
            result = find(name.encode(), ctypes.byref(address), DRIVER_VERSION, 0, ctypes.byref(found))
            if result != 0 or not address.value:
                raise RuntimeError(f"the driver has no {name}")
            self.calls[name] = ctypes.CFUNCTYPE(Int, *types)(address.value)
        self("cuInit", 0)
        self.device = Int()
        self("cuDeviceGet", ctypes.byref(self.device), ordinal)
        self("cuCtxPushCurrent", self.made("cuDevicePrimaryCtxRetain", self.device))
        self.stream = self.made("cuStreamCreate", STREAM_NON_BLOCKING)
        self.events = [self.made("cuEventCreate", 0) for _ in range(peer.LAUNCHES + 1)]

    def __call__(self, name, *arguments):
        result = self.calls[name](*arguments)
        if result != 0:
            raise RuntimeError(f"{name} failed: CUDA error {result}")

    def made(self, name, *arguments):
        value = Pointer()
        self(name, ctypes.byref(value), *arguments)
        return value

    def device_name(self):
        name = ctypes.create_string_buffer(256)
        self("cuDeviceGetName", name, len(name), self.device)
        return name.value.decode()

    def wait(self):
        """Until the stream has nothing to do."""
        while (result := self.calls["cuStreamQuery"](self.stream)) == NOT_READY:
            time.sleep(0.00005)
        if result != 0:
            raise RuntimeError(f"the stream failed: CUDA error {result}")

    def copy(self, target, source, nbytes):
        self("cuMemcpyAsync", target, source, nbytes, self.stream)
        self.wait()

    def captured(self, run, count):
        graph = Pointer()
        self("cuStreamBeginCapture", self.stream, CAPTURE_THREAD_LOCAL)
        try:
            for _ in range(count):
                run()
        finally:  # or the stream would be of no use any more
            self("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        return self.made("cuGraphInstantiateWithFlags", graph, 0)

    def times(self, graph):
        """Microseconds of each of some launches; the first one synchronizes the ranks."""
        self("cuGraphLaunch", graph, self.stream)
        for event in self.events[:-1]:
            self("cuEventRecord", event, self.stream)
            self("cuGraphLaunch", graph, self.stream)
        self("cuEventRecord", self.events[-1], self.stream)
        self.wait()
        return [self.between(*pair) for pair in zip(self.events, self.events[1:])]

    def between(self, start, end):
        ms = ctypes.c_float()
        self("cuEventElapsedTime", ctypes.byref(ms), start, end)
        return 1000 * ms.value


# --- NVSHMEM --------------------------------------------------------------------------------------


class UniqueId(ctypes.Structure):
    _fields_ = [("version", Int), ("internal", ctypes.c_char * 124)]


class UniqueIdArgs(ctypes.Structure):
    _fields_ = [("version", Int), ("id", Pointer), ("rank", Int), ("ranks", Int)]


class InitArgs(ctypes.Structure):
    _fields_ = [("version", Int), ("unique_id", UniqueIdArgs), ("content", ctypes.c_char * 96)]


class InitAttr(ctypes.Structure):
    _fields_ = [("version", Int), ("mpi_comm", Pointer), ("args", InitArgs)]


def version_of(structure):
    return (1 << 16) + ctypes.sizeof(structure)


COLLECTIVES = ("sum_reduce", "sum_reducescatter", "fcollect", "alltoall", "broadcast")


def load():
    """The library: what the loader finds, or else what the wheel has."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        try:
            wheel = importlib.util.find_spec("nvidia.nvshmem")
        except ModuleNotFoundError:
            wheel = None
        if wheel is None:
            raise
        library = ctypes.CDLL(os.path.join(wheel.submodule_search_locations[0], "lib", LIBRARY))
    library.nvshmem_malloc.argtypes, library.nvshmem_malloc.restype = (Size,), Pointer
    for name in ("barrier", "sync"):
        getattr(library, f"nvshmemx_{name}_all_on_stream").argtypes = (Pointer,)
    for name in COLLECTIVES:
        root = (Int,) if name == "broadcast" else ()
        call = getattr(library, f"nvshmemx_bfloat16_{name}_on_stream")
        call.argtypes = (Int, Pointer, Pointer, Size) + root + (Pointer,)
    return library


def bfloat16(number):
    """The bytes of a number with few digits."""
    return struct.pack("<f", number)[2:]


class Rank:
    """One GPU. What is measured is kept as a graph for the next time it is asked for."""

    def __init__(self, rank, ranks, meeting):
        self.rank, self.ranks = rank, ranks
        self.driver = Driver(rank)
        self.library = load()
        self.start(meeting)
        self.input, self.output = (self.library.nvshmem_malloc(MOST_BYTES) for _ in range(2))
        if self.input is None or self.output is None:
            raise RuntimeError(f"no symmetric memory: 2 x {MOST_BYTES} bytes")
        self.graphs = {}
        self.barrier()

    def start(self, meeting):
        library, number = self.library, UniqueId()
        number.version = version_of(UniqueId)
        if self.rank == 0:
            if library.nvshmemx_get_uniqueid(ctypes.byref(number)) != 0:
                raise RuntimeError("nvshmemx_get_uniqueid failed")
            for _ in range(self.ranks - 1):
                meeting.queue.put(bytes(number))
        else:
            number = UniqueId.from_buffer_copy(meeting.queue.get())
        attr = InitAttr(version=version_of(InitAttr))
        attr.args.version = version_of(InitArgs)
        attr.args.unique_id.version = version_of(UniqueIdArgs)
        if (
            library.nvshmemx_set_attr_uniqueid_args(
                self.rank, self.ranks, ctypes.byref(number), ctypes.byref(attr)
            )
            != 0
            or library.nvshmemx_hostlib_init_attr(INIT_WITH_UNIQUEID, ctypes.byref(attr)) != 0
        ):
            raise RuntimeError("NVSHMEM does not start")

    def about(self):
        version = [Int() for _ in range(3)]
        self.library.nvshmemx_vendor_get_version_info(*(ctypes.byref(part) for part in version))
        return {
            "library": "NVSHMEM " + ".".join(str(part.value) for part in version),
            "device": self.driver.device_name(),
        }

    def barrier(self):
        self.driver.wait()
        self.library.nvshmem_barrier_all()

    def operation(self, op, nbytes):
        """The call, its target and count, and the numbers that its equal parts have to be. `nbytes` is
        what each rank passes in."""
        count, each = nbytes // 2, [rank + 1 for rank in range(self.ranks)]
        part = count // self.ranks
        operations = {
            "all_reduce": ("sum_reduce", self.input, count, [sum(each)]),
            "all_reduce_out": ("sum_reduce", self.output, count, [sum(each)]),
            "reduce_scatter": ("sum_reducescatter", self.output, part, [sum(each)]),
            "all_gather": ("fcollect", self.output, count, each),
            "all_to_all": ("alltoall", self.output, part, each),
            "broadcast": ("broadcast", self.output, count, [1]),
            "broadcast_in_place": ("broadcast", self.input, count, [1]),
        }
        name = op.removeprefix("nvshmem_")
        if name not in operations:
            raise ValueError(f"there is no op {op}")
        call, target, count, wanted = operations[name]
        if count * len(wanted) * 2 > MOST_BYTES or nbytes > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes")
        return call, target, count, wanted

    def make(self, op, nbytes):
        stream = self.driver.stream
        if op in ("nvshmem_barrier", "nvshmem_sync"):
            call = getattr(self.library, f"nvshmemx_{op[8:]}_all_on_stream")
            return lambda: call(stream)
        name, target, count, wanted = self.operation(op, nbytes)
        call = getattr(self.library, f"nvshmemx_bfloat16_{name}_on_stream")
        root = (0,) if name == "broadcast" else ()

        def run():
            if call(TEAM_WORLD, target, self.input, count, *root, stream) != 0:
                raise RuntimeError(f"{op} was refused")

        self.check(op, nbytes, run, target, count, wanted)
        return run

    def check(self, op, nbytes, run, target, count, wanted):
        """As many parts of the result as there are numbers have these; then all are zeros again, so that
        sums in place stay what they are."""
        result = ctypes.create_string_buffer(2 * count * len(wanted))
        self.driver.copy(self.output, bytes(len(result)), len(result))
        self.driver.copy(self.input, bfloat16(self.rank + 1) * (nbytes // 2), nbytes)
        self.barrier()
        run()
        self.driver.wait()
        self.driver.copy(result, target, len(result))
        self.barrier()
        for buffer, size in ((self.input, nbytes), (self.output, len(result))):
            self.driver.copy(buffer, bytes(size), size)
        self.barrier()
        if result.raw != b"".join(bfloat16(number) * count for number in wanted):
            raise RuntimeError(f"{op}: wrong results")

    def answer(self, op, nbytes, count):
        if count <= 0:
            raise ValueError(f"{op} is to be captured")
        key = (op, nbytes, count)
        if key not in self.graphs:
            run = self.make(op, nbytes)
            run()  # whatever is made ready by the first call
            self.barrier()
            self.graphs[key] = self.driver.captured(run, count)
        return self.driver.times(self.graphs[key])


if __name__ == "__main__":
    sys.exit(peer.main(Rank, __doc__.splitlines()[0]))

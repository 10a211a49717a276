"""LMCache's raw_block on the work of the suite `l3`: told on standard input to put blocks and to get them, it tells how
many seconds that took.

How it is driven: `RawBlockCore` with `put_many` and `load_many_into`, as LMCache's own adapter for this storage drives it,
with its Rust extension, `io_uring`, `O_DIRECT` and no copies between its memory and the device; its memory is registered
with the ring. Pages are those that LMCache allocates by default, of 4 KiB; with `huge` they are of 2 MiB, as with its
option `local_cpu_use_hugepages`. A put begins in a buffer of the caller, as with the others; a get ends in its memory. Its file is
written once before, as ours are: first writes are slower. It keeps nothing in memory, so that every get reads the device.
The rest of LMCache, PyTorch above all, takes no part: names that the module imports but does not use on this path are
stood in for.

    raw_block.py SOURCES FOLDER CAPACITY_BYTES BLOCK_BYTES [huge]

SOURCES: an unpacked source distribution of LMCache. FOLDER: where its file goes.
Lines in: `put FIRST COUNT`, `get FIRST COUNT`, `reopen`. Lines out: `ready`, seconds, `ok`.
"""

import importlib.util
import logging
import mmap
import os
import random
import sys
import time
import types
from ctypes import addressof, c_ubyte
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 4096
# Two copies of its index.
INDEX_BYTES = 64 << 20
PIECE_BYTES = 4 << 20
# More than any batch.
BATCH_BYTES = 512 << 20
# The caller's buffers, used over and over as an engine's bounce buffers are.
SOURCE_BLOCKS = 2
HUGE_PAGE_BYTES = 2 << 20


class StandIn(types.ModuleType):
    """A module whose every name is an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@dataclass
class Record:
    """What raw_block remembers of a block."""

    path: str
    size: int
    shape: object = None
    dtype: object = None
    cached_positions: object = None
    fmt: object = None
    pin_count: int = 0


def load(sources):
    """Loads the two modules of raw_block, and nothing else of LMCache."""
    stand_ins = [
        "torch",
        "lmcache",
        "lmcache.logging",
        "lmcache.utils",
        "lmcache.v1",
        "lmcache.v1.memory_management",
        "lmcache.v1.distributed",
        "lmcache.v1.distributed.api",
        "lmcache.v1.storage_backend",
        "lmcache.v1.storage_backend.raw_block",
    ]
    for name in stand_ins:
        sys.modules[name] = StandIn(name)
    sys.modules["lmcache.logging"].init_logger = logging.getLogger
    sys.modules["lmcache.utils"].DiskCacheMetadata = Record
    loaded = {}
    for name in ("key_codec", "core"):
        full = f"lmcache.v1.storage_backend.raw_block.{name}"
        path = Path(sources) / "lmcache/v1/storage_backend/raw_block" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(full, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
        loaded[name] = module
    return loaded["core"], loaded["key_codec"]


class Block:
    """Memory of one block, with what raw_block asks of its memory objects."""

    def __init__(self, memory, base, index, size):
        self.byte_array = memoryview(memory)[index * size : (index + 1) * size]
        self.data_ptr = base + index * size
        self.metadata = types.SimpleNamespace(shape=None, dtype=None, cached_positions=None, fmt=None)


class Peer:
    """An open raw_block and the memory that it reads into and writes from."""

    def __init__(self, core, keys, pages, file, capacity, block):
        self.keys = keys
        config = core.RawBlockCoreConfig(
            device_path=file,
            capacity_bytes=capacity,
            block_align=4096,
            header_bytes=HEADER_BYTES,
            slot_bytes=HEADER_BYTES + block,
            use_odirect=True,
            enable_zero_copy=True,
            meta_total_bytes=INDEX_BYTES,
            meta_magic=b"LMCIDX01",
            meta_version=1,
            meta_checkpoint_interval_sec=30,
            meta_idle_quiet_ms=1000,
            meta_enable_periodic=False,
            meta_verify_on_load=False,
            load_checkpoint_on_init=False,
            io_engine="io_uring",
        )
        self.core = core.RawBlockCore(config, key_namespace="object")
        self.memory = mmap.mmap(-1, BATCH_BYTES + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory.madvise(mmap.MADV_HUGEPAGE if pages == ["huge"] else mmap.MADV_NOHUGEPAGE)
        begin = addressof(c_ubyte.from_buffer(self.memory))
        skip = -begin % HUGE_PAGE_BYTES
        view = memoryview(self.memory)[skip : skip + BATCH_BYTES]
        for at in range(0, BATCH_BYTES, PIECE_BYTES):
            view[at : at + PIECE_BYTES] = random.randbytes(PIECE_BYTES)
        self.core.register_fixed_buffer_range(begin + skip, BATCH_BYTES)
        self.sources = [random.randbytes(block) for _ in range(SOURCE_BLOCKS)]
        self.blocks = [Block(view, begin + skip, index, block) for index in range(BATCH_BYTES // block)]

    def specs(self, first, count):
        """The keys of these blocks."""
        named = (f"model@0x00000000@0@{number:064x}" for number in range(first, first + count))
        return [self.keys.RawBlockKeySpec(encoded=name, slot_identity=hash(name) & (2**64 - 1)) for name in named]

    def put(self, first, count):
        """Seconds until these blocks are on the device."""
        specs, blocks = self.specs(first, count), self.blocks[:count]
        begun = time.perf_counter()
        for index, (spec, block) in enumerate(zip(specs, blocks, strict=True)):
            block.byte_array[:] = self.sources[index % SOURCE_BLOCKS]
            block.byte_array[:64] = spec.encoded[-64:].encode()
        result = self.core.put_many(specs, blocks)
        seconds = time.perf_counter() - begun
        if not all(result.results):
            raise RuntimeError("raw_block did not store every block")
        return seconds

    def get(self, first, count):
        """Seconds until these blocks are in memory."""
        specs, blocks = self.specs(first, count), self.blocks[:count]
        for block in blocks:
            block.byte_array[:64] = bytes(64)
        begun = time.perf_counter()
        result = self.core.load_many_into([spec.encoded for spec in specs], blocks)
        seconds = time.perf_counter() - begun
        for spec, block, loaded in zip(specs, blocks, result, strict=True):
            if not loaded or bytes(block.byte_array[:64]) != spec.encoded[-64:].encode():
                raise RuntimeError(f"raw_block did not load {spec.encoded}")
        return seconds


def write_once(file, capacity):
    """Writes every byte of the file, so that the file system has nothing left to find."""
    piece = bytes(PIECE_BYTES)
    with open(file, "wb", buffering=0) as out:
        for _ in range(capacity // PIECE_BYTES):
            out.write(piece)
        os.fsync(out.fileno())


def main():
    sources, folder, capacity, block, *pages = sys.argv[1:]
    file, capacity, block = f"{folder}/raw_block", int(capacity), int(block)
    write_once(file, capacity)
    core, keys = load(sources)
    peer = Peer(core, keys, pages, file, capacity, block)
    print("ready", flush=True)
    for line in sys.stdin:
        match line.split():
            case ["put", first, count]:
                print(peer.put(int(first), int(count)), flush=True)
            case ["get", first, count]:
                print(peer.get(int(first), int(count)), flush=True)
            case ["reopen"]:
                print("ok", flush=True)
            case told:
                raise ValueError(f"told {told}")


if __name__ == "__main__":
    main()

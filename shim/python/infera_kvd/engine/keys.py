"""Names: under which key a block is stored, and in which namespace.

A key is the engine's own hash of a block, which covers every token up to its end, the LoRA's name, the cache salt and
the identity of images, followed by the number of its cache group. Everything else that must be equal before bytes of
one engine may be used by another is in the namespace's `compat_key`.
"""

import dataclasses
import hashlib
import json
import secrets

# Of the bytes under a key: changes when a release orders them in another way.
FORMAT = 1
GROUP_BYTES = 4
# The daemon's limit for each half of a namespace.
NAMESPACE_BYTES_MAX = 1024


def block_key(block_hash, group=0):
    """The key of one block of one cache group. `block_hash`: bytes, as the engine made it."""
    return bytes(block_hash) + group.to_bytes(GROUP_BYTES, "big")


class Names:
    """What an engine's blocks are called: as it calls them, until it drops its cache.

    It may have got other weights then, of which nobody else knows. From then on it has names of its own, under which
    nothing is that was stored so far or that others store.
    """

    def __init__(self):
        self._salt = b""

    def of(self, block_hash):
        """The name of one block. `block_hash`: bytes, as the engine made it."""
        return hashlib.sha256(self._salt + bytes(block_hash)).digest() if self._salt else bytes(block_hash)

    def renew(self):
        """Other names from now on."""
        self._salt = secrets.token_bytes(16)


class BlockKeys:
    """The keys of a run of blocks, made when a slice of them is taken: most look-ups end at their first block.

    `hashes`: of all blocks of a request. The run is from `first` up to before `end`.
    """

    def __init__(self, names, hashes, first, end):
        self._names = names
        self._hashes = hashes
        self._first = first
        self._end = end

    def __len__(self):
        return max(self._end - self._first, 0)

    def __getitem__(self, part):
        start, stop, _ = part.indices(len(self))
        return [block_key(self._names.of(one)) for one in self._hashes[self._first + start : self._first + stop]]


@dataclasses.dataclass(frozen=True)
class Shard:
    """What one worker stores: its namespace, and how many bytes each block has there, `None` to whom that is not told."""

    model: str
    compat_key: str
    block_bytes: int | None

    def private(self):
        """The same in a namespace of which nobody else knows, and where nothing is.

        For an engine that drops its cache: it may have got other weights than those in its files.
        """
        return dataclasses.replace(self, compat_key=f"{self.compat_key}-{secrets.token_hex(8)}")


def shard_label(rank, size, replicated=False):
    """One rank's place among its peers. Ranks that hold equal bytes have one label: it is stored once."""
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} of {size}")
    return f"any/{size}" if replicated else f"{rank}/{size}"


def compat_key(engine, **parts):
    """A short name for everything that must be equal before blocks may be shared.

    The same parts give the same name in every process and on every host. `parts`: what JSON can hold. `engine`: "vllm", "sglang"; two engines share nothing.
    """
    text = json.dumps({"format": FORMAT, **parts}, sort_keys=True, separators=(",", ":"))
    return f"{engine}-{FORMAT}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def model_name(path_or_id):
    """The name that operators see: a hub id as it is, of a path its last part."""
    name = str(path_or_id).rstrip("/")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        name = name.rpartition("/")[2]
    encoded = name.encode()[:NAMESPACE_BYTES_MAX]
    return encoded.decode(errors="ignore") or "model"

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
# Hexadecimal digits behind "own" in a name.
OWN_DIGITS = 16
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


@dataclasses.dataclass(frozen=True)
class Ranks:
    """One worker's place among those that store parts of the same blocks: (rank, size) along each way of sharing.

    `replicated`: ranks of tensor parallelism hold equal bytes, which are stored once, under one name.
    """

    tensor: tuple[int, int] = (0, 1)
    pipeline: tuple[int, int] = (0, 1)
    context: tuple[int, int] = (0, 1)
    replicated: bool = False

    def __post_init__(self):
        for rank, size in (self.tensor, self.pipeline, self.context):
            if not 0 <= rank < size:
                raise ValueError(f"rank {rank} of {size}")

    def peers(self):
        """What is the same for all of them. For JSON."""
        sizes = [size for _, size in (self.tensor, self.pipeline, self.context)]
        return [*sizes, "replicated" if self.replicated else "apart"]

    @property
    def has_stages(self):
        """Whether each of them has layers of its own."""
        return self.pipeline[1] > 1

    def text(self):
        """Which part this one stores, as routers read it; empty if it is all of each block."""
        tensor = (0, 1) if self.replicated else self.tensor
        ways = {"tp": tensor, "pp": self.pipeline, "cp": self.context}
        if all(size == 1 for _, size in ways.values()):
            return ""
        return "_".join(f"{way}{rank}of{size}" for way, (rank, size) in ways.items() if way != "cp" or size > 1)


def compat_key(engine, ranks=Ranks(), stage=None, **parts):
    """A short name for everything that must be equal before blocks may be shared.

    The same parts give the same name in every process and on every host. `engine`: "vllm", "sglang"; two engines share
    nothing. `parts`, `stage`: what JSON can hold; `parts` is the same on all ranks, `stage` on those that have the same
    layers. A router tells by the end of the name which ranks belong together: it differs in ranks and stage only.
    """
    shared = {"format": FORMAT, "ranks": ranks.peers(), **parts}
    ends = [ranks.text()]
    if ranks.has_stages:
        ends.append(f"own{_digest(stage)[:OWN_DIGITS]}")
    else:
        shared["stage"] = stage
    end = "_".join(end for end in ends if end)
    return f"{engine}-{FORMAT}-{_digest(shared)[:40]}" + (f"-{end}" if end else "")


def _digest(value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def model_name(path_or_id):
    """The name that operators see: a hub id as it is, of a path its last part."""
    name = str(path_or_id).rstrip("/")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        name = name.rpartition("/")[2]
    encoded = name.encode()[:NAMESPACE_BYTES_MAX]
    return encoded.decode(errors="ignore") or "model"

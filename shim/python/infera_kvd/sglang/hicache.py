"""What the HiCache backend does with SGLang's pools: plain Python, called by several threads of SGLang's at once.

A pool is a piece of host memory in pages. What SGLang wants of it is the pages' names and their indices in the pool; where
their bytes are the pool says itself (`get_page_buffer_meta`), as 2 runs a page or as many as 2 for each layer.
"""

import ctypes
import dataclasses

from infera_kvd.engine.keys import Ranks
from infera_kvd.sglang.pages import restorable_lengths, runs_of

MAIN = "kv"
TRAILING = "trailing_pages"
ALL = "all_pages"
# Different on each rank even where the other pools are equal.
RANKS_OWN = "mamba"


@dataclasses.dataclass
class Pool:
    """A pool that is served. `stores`: false on a rank whose bytes another rank stores."""

    memory: object
    store: object
    page_size: int
    stores: bool


class Pools:
    """All pools of one rank by name. Whatever cannot be had is a miss."""

    def __init__(self, log):
        self._log = log
        self._pools = {}
        self._said = set()

    def add(self, name, pool):
        """A pool that can be served."""
        self._pools[name] = pool

    def __contains__(self, name):
        return name in self._pools

    def page_bytes(self, name):
        """Bytes of one page of a pool."""
        return self._pools[name].store.page_bytes

    def leading(self, names):
        """How many pages of the main pool, from the first on, are there."""
        return self._pools[MAIN].store.leading(names) if MAIN in self._pools else 0

    def restorable(self, names, transfers):
        """Which lengths of a prefix can be restored, in pages, and how far each pool reaches.

        `transfers`: SGLang's, each with the name of a pool, what it needs of it and, if that is the end of a prefix, as
        many keys as it needs pages.
        """
        pages = self.leading(names)
        found = []
        for transfer in transfers or ():
            name = plain(transfer.name)
            if name == MAIN:
                continue
            policy = plain(transfer.hit_policy)
            if name not in self._pools or policy not in (ALL, TRAILING):
                self._say(f"pool {name} ({policy}) is not served: nothing is found of models that need it")
                return [], {}
            window = max(1, len(transfer.keys or ())) if policy == TRAILING else None
            has = self._pools[name].store.present(names[:pages]) if pages else []
            found.append((name, has, window))
        lengths, reach = restorable_lengths(pages, found)
        return lengths, {MAIN: pages, **reach}

    def get(self, name, page_names, indices):
        """Fills pages of a pool. Whether each is filled."""
        buffers = self._buffers(name, page_names, indices)
        if buffers is None:
            return [False] * len(page_names)
        return self._pools[name].store.load(page_names, buffers)

    def set(self, name, page_names, indices, before=None):
        """Stores pages of a pool. Whether each is stored; true as well on a rank whose pages another one stores."""
        if name in self._pools and not self._pools[name].stores:
            return [True] * len(page_names)
        buffers = self._buffers(name, page_names, indices)
        if buffers is None:
            return [False] * len(page_names)
        return self._pools[name].store.save(page_names, buffers, before)

    def get_values(self, page_names, targets):
        """As `get`, into one buffer of the caller's for each page of the main pool."""
        if MAIN not in self._pools or len(targets) != len(page_names):
            return [False] * len(page_names)
        return self._pools[MAIN].store.load(page_names, [[target] for target in targets])

    def set_values(self, page_names, sources):
        """As `set`, from one buffer of the caller's for each page of the main pool."""
        if MAIN not in self._pools or len(sources) != len(page_names):
            return [False] * len(page_names)
        pool = self._pools[MAIN]
        if not pool.stores:
            return [True] * len(page_names)
        odd = {len(source) for source in sources} - {pool.store.page_bytes}
        if odd:
            self._say(f"a page of {odd.pop()} bytes where the pool has {pool.store.page_bytes}: not stored")
            return [False] * len(page_names)
        return pool.store.save(page_names, [[source] for source in sources])

    def clear(self):
        """Forgets everything of these namespaces. Whether all of it is."""
        return all([pool.store.clear() for pool in self._pools.values()])

    def _buffers(self, name, page_names, indices):
        pool = self._pools.get(name)
        if pool is None:
            # Why, has been said when it was not added.
            return None
        if indices is None or len(indices) != len(page_names) * pool.page_size:
            count = None if indices is None else len(indices)
            self._say(f"pool {name}: {count} indices for {len(page_names)} pages of {pool.page_size}: left out")
            return None
        runs = runs_of(*pool.memory.get_page_buffer_meta(indices), len(page_names))
        sizes = {sum(size for _, size in page) for page in runs} - {pool.store.page_bytes}
        if sizes:
            self._say(f"pool {name} has pages of {sizes.pop()} bytes and once had {pool.store.page_bytes}: left out")
            return None
        return [[memory(address, size) for address, size in page] for page in runs]

    def _say(self, text):
        """Each text once: what is wrong with a pool is so each time."""
        if text not in self._said:
            self._said.add(text)
            self._log.warning("infera-kvd: %s", text)


def ranks_of(config, name):
    """A rank's place among its peers, for its namespace, and whether it stores its pages of this pool itself.

    `config`: SGLang's `HiCacheStorageConfig`.
    """
    replicated = config.is_mla_model and name != RANKS_OWN
    ranks = Ranks(
        (config.tp_rank, config.tp_size),
        (config.pp_rank, config.pp_size),
        (config.attn_cp_rank, config.attn_cp_size),
        replicated,
    )
    # Older releases do not name the writer.
    return ranks, not replicated or getattr(config, "is_storage_writer", config.tp_rank == 0)


def plain(name):
    """The text of a member of one of SGLang's enumerations."""
    return str(getattr(name, "value", name))


def memory(address, size):
    """Memory that somebody else owns, as a writable buffer."""
    # As a memoryview: the native module asks for strides, which an array of ctypes does not tell.
    return memoryview((ctypes.c_ubyte * int(size)).from_address(int(address))).cast("B")

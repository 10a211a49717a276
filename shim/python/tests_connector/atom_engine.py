"""Stand-ins for ATOM: the modules that the connector imports, and an engine that calls it as ATOM's scheduler does.

The engine follows ATOM's published scheduler: it asks what is stored, makes room, parks a request whose load it waits
for, tells the workers what to do before each forward pass, and combines their reports. The bytes of a token are a
function of all tokens up to it and the rank, so that every forward pass can check what it reads.
"""

import collections
import ctypes
import dataclasses
import hashlib
import pickle
import sys
import time
import types

BLOCK_TOKENS = 4
TOKEN_BYTES = 3
PLANES = ("k_cache", "v_cache")
RANKS = 2


def modules():
    """The modules of ATOM and AITER that are imported, by name."""
    factory, base, kinds, parallel = (types.ModuleType(name) for name in ("factory", "base", "types", "parallel_state"))

    class KVConnectorFactory:
        registry = {}

        @classmethod
        def register(cls, name, *, worker_module, worker_class, scheduler_module, scheduler_class):
            cls.registry[name] = {"worker": (worker_module, worker_class), "scheduler": (scheduler_module, scheduler_class)}

    factory.KVConnectorFactory = KVConnectorFactory
    base.KVConnectorBase = _abstract("register_kv_caches", "start_load_kv", "get_finished")
    base.KVConnectorSchedulerBase = _abstract(
        "get_num_new_matched_tokens", "build_connector_meta", "update_state_after_alloc", "request_finished"
    )

    class ConnectorMetadata:
        def has_work(self):
            return False

    @dataclasses.dataclass
    class KVConnectorOutput:
        finished_loading: set = dataclasses.field(default_factory=set)
        failed_loading: set = dataclasses.field(default_factory=set)
        finished_saving: set = dataclasses.field(default_factory=set)

    kinds.ConnectorMetadata, kinds.KVConnectorOutput = ConnectorMetadata, KVConnectorOutput
    parallel.rank = 0
    parallel.get_tp_group = lambda: types.SimpleNamespace(rank_in_group=parallel.rank, world_size=RANKS)
    here = "atom.kv_transfer.disaggregation"
    found = {f"{here}.factory": factory, f"{here}.base": base, f"{here}.types": kinds, "aiter.dist.parallel_state": parallel}
    for name in ("atom", "atom.kv_transfer", here, "aiter", "aiter.dist"):
        found[name] = types.ModuleType(name)
    return found


def _abstract(*names):
    """A base class without which of these methods nothing can be made."""
    import abc

    return abc.ABCMeta("Base", (), {name: abc.abstractmethod(lambda self: None) for name in names})


class Tensor:
    """As much of a tensor as is looked at: `nbytes` bytes in a row, first of all by block."""

    def __init__(self, blocks, block_bytes, device="cpu", *, contiguous=True):
        self.shape = (blocks, block_bytes)
        self.device = types.SimpleNamespace(type=device)
        self.memory = (ctypes.c_ubyte * (blocks * block_bytes))()
        self._contiguous = contiguous

    def numel(self):
        return self.shape[0] * self.shape[1]

    def element_size(self):
        return 1

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def is_contiguous(self):
        return self._contiguous


def caches(blocks, device="cpu"):
    """What a worker is given: two layers of two planes."""
    return {
        name: types.SimpleNamespace(**{plane: Tensor(blocks, BLOCK_TOKENS * TOKEN_BYTES, device) for plane in PLANES})
        for name in ("layer.0", "layer.1")
    }


class Sequence:
    """One request, with what the connector reads of it."""

    def __init__(self, number, prompt, output_left, parameters=None):
        self.id = number
        self.token_ids = list(prompt)
        self.num_prompt_tokens = len(prompt)
        self.num_cached_tokens = 0
        self.block_table = []
        self.kv_transfer_params = parameters
        self.multimodal_data = None
        self.is_finished = False
        self.output_left = output_left
        self.parked = False
        self.resumes = False


class Engine:
    """One life of ATOM with `blocks` blocks, and a worker for each rank."""

    def __init__(self, config, random, blocks):
        from infera_kvd.atom.scheduler import InferaKvdScheduler
        from infera_kvd.atom.worker import InferaKvdWorker

        self.random = random
        self.free = list(range(blocks))
        self.scheduler = InferaKvdScheduler(config)
        self.caches = [caches(blocks) for _ in range(RANKS)]
        self.workers = []
        for rank, cache in enumerate(self.caches):
            sys.modules["aiter.dist.parallel_state"].rank = rank
            self.workers.append(InferaKvdWorker(config))
            self.workers[-1].register_kv_caches(cache, None, blocks)
        self.waiting, self.running = collections.deque(), []
        self.deferred = {}
        self.reports = {"load": {}, "failed": {}, "save": {}}
        self.ready, self.failed = set(), set()
        self.loaded_tokens = self.computed_tokens = self.preemptions = 0

    def run(self, *sequences, steps=5000):
        """Until all have ended and nothing is awaited any more."""
        self.waiting.extend(sequences)
        for _ in range(steps):
            if not (self.waiting or self.running or self.deferred or self.scheduler.has_pending_work()):
                return
            self.step()
        raise TimeoutError(f"{len(self.waiting)} wait, {len(self.running)} run, {len(self.deferred)} are held")

    def close(self):
        """Its end."""
        for worker in self.workers:
            worker.close()

    def step(self):
        """One step: plan, tell the workers, compute, see what they report."""
        chunks = self._schedule()
        metadata = self.scheduler.build_connector_meta()
        if metadata.has_work():
            for worker in self.workers:
                worker.start_load_kv(_sent(metadata.step, type(metadata)))
        for seq, tokens in chunks:
            self._compute(seq, tokens)
        for seq, tokens in chunks:
            seq.num_cached_tokens += tokens
            if seq.num_cached_tokens >= len(seq.token_ids):
                self._sample(seq)
        self._take_reports()
        if not chunks:
            time.sleep(0.001)

    def _schedule(self):
        chunks = [(seq, min(len(seq.token_ids) - seq.num_cached_tokens, 6)) for seq in self.running if self._has_room(seq)]
        chunks = [(seq, tokens) for seq, tokens in chunks if seq in self.running]
        # Those whose load has ended have their blocks already, for which others may wait.
        self.waiting = collections.deque(sorted(self.waiting, key=lambda seq: seq.id not in self.ready | self.failed))
        parked = []
        while self.waiting:
            seq = self.waiting.popleft()
            if seq.parked and not self._is_woken(seq):
                parked.append(seq)
                continue
            if not seq.resumes:
                _, waits = self.scheduler.get_num_new_matched_tokens(seq)
                needed = -(-len(seq.token_ids) // BLOCK_TOKENS)
                if len(self.free) < needed:
                    self.waiting.appendleft(seq)
                    break
                seq.block_table = [self.free.pop(0) for _ in range(needed)]
                self.scheduler.update_state_after_alloc(seq)
                if waits and self.scheduler.should_park_for_load_after_alloc(seq):
                    seq.parked = True
                    parked.append(seq)
                    continue
            seq.resumes = False
            self.running.append(seq)
            chunks.append((seq, min(len(seq.token_ids) - seq.num_cached_tokens, 6)))
        self.waiting.extend(parked)
        return chunks

    def _is_woken(self, seq):
        if seq.id in self.failed:
            self.failed.remove(seq.id)
            self.scheduler.load_failed(seq.id)
            seq.offload_loaded_tokens = seq.num_cached_tokens
        elif seq.id in self.ready:
            self.ready.remove(seq.id)
            self.loaded_tokens += seq.offload_loaded_tokens - seq.num_cached_tokens
            seq.num_cached_tokens = max(seq.num_cached_tokens, seq.offload_loaded_tokens)
        else:
            return False
        seq.parked, seq.resumes = False, True
        return True

    def _has_room(self, seq):
        """For one more token; if need be somebody else, or it itself, has to begin again."""
        if len(seq.token_ids) <= len(seq.block_table) * BLOCK_TOKENS:
            return True
        while not self.free:
            other = self.running.pop()
            self.preemptions += 1
            self._release(other)
            other.num_cached_tokens = 0
            self.waiting.appendleft(other)
            if other is seq:
                return False
        seq.block_table.append(self.free.pop(0))
        return True

    def _compute(self, seq, tokens):
        first = seq.num_cached_tokens
        self.computed_tokens += tokens
        for rank in range(RANKS):
            for at in range(first + tokens):
                for plane, memory in self._places(rank):
                    place = (seq.block_table[at // BLOCK_TOKENS] * BLOCK_TOKENS + at % BLOCK_TOKENS) * TOKEN_BYTES
                    expected = _bytes(seq.token_ids[: at + 1], rank, plane)
                    if at >= first:
                        memory[place : place + TOKEN_BYTES] = expected
                    found = bytes(memory[place : place + TOKEN_BYTES])
                    assert found == expected, f"request {seq.id}, token {at}, rank {rank}"

    def _places(self, rank):
        for name, cache in self.caches[rank].items():
            for plane in PLANES:
                yield f"{name}.{plane}", getattr(cache, plane).memory

    def _sample(self, seq):
        if seq.output_left > 0:
            seq.output_left -= 1
            seq.token_ids.append(sum(seq.token_ids) % 251)
            return
        seq.is_finished = True
        self.running.remove(seq)
        self.scheduler.request_finished(seq)
        if self.scheduler.should_defer_free(seq):
            self.deferred[seq.id] = seq
        else:
            self._release(seq)

    def _release(self, seq):
        # Those that went last come first, as the worst case.
        self.free = seq.block_table + self.free
        seq.block_table = []

    def _take_reports(self):
        for rank, worker in enumerate(self.workers):
            output = worker.get_finished()
            for kind, ids in (
                ("load", output.finished_loading), ("failed", output.failed_loading), ("save", output.finished_saving)
            ):  # fmt: skip
                for request_id in ids:
                    self.reports[kind].setdefault(request_id, set()).add(rank)
        loads, failed = self.reports["load"], self.reports["failed"]
        for request_id in {*loads, *failed}:
            if len(loads.get(request_id, set()) | failed.get(request_id, set())) == RANKS:
                (self.failed if request_id in failed else self.ready).add(request_id)
                loads.pop(request_id, None)
                failed.pop(request_id, None)
        for request_id in [each for each, ranks in self.reports["save"].items() if len(ranks) == RANKS]:
            del self.reports["save"][request_id]
            self.scheduler.save_finished(request_id)
            seq = self.deferred.get(request_id)
            if seq is not None and not self.scheduler.should_defer_free(seq):
                del self.deferred[request_id]
                self.scheduler.request_finished(seq)
                self._release(seq)


def _sent(step, kind):
    """As another process gets it."""
    return kind(pickle.loads(pickle.dumps(step)))


def _bytes(tokens, rank, plane):
    return hashlib.sha256(f"{rank} {plane} {tokens}".encode()).digest()[:TOKEN_BYTES]

"""An engine small enough to be checked: requests, blocks and ranks like vLLM's, bytes that say what they should be.

A block's bytes are a function of its hash and the rank. They come out right only if everything before the block was
right *on every rank* when the block was computed, and only when the step ends, up to `depth` steps after it was
planned. A request that loads waits until every rank has reported it; then it goes on behind the blocks that all have.
"""

import collections
import dataclasses
import hashlib
import os
import time
import types

from stand_ins import Client, Log

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.keys import Shard, block_key
from infera_kvd.engine.options import Options
from infera_kvd.vllm.scheduler import SchedulerHalf
from infera_kvd.vllm.worker import WorkerHalf

BLOCK_TOKENS = 4
VALUE_BYTES = 8
RANKS = 2
STUCK_SECONDS = 60


def right(block_hash, rank):
    """What a block's bytes must be."""
    return hashlib.sha256(block_hash + bytes([rank])).digest()[:VALUE_BYTES]


@dataclasses.dataclass(eq=False)
class Request:
    """What the connector reads of vLLM's request, and what this engine keeps beside it."""

    request_id: str
    tokens: list[int]
    output_left: int
    num_computed_tokens: int = 0
    num_in_flight_tokens: int = 0
    kv_transfer_params: dict | None = None
    lora_request: object = None
    cache_salt: str | None = None
    skip_reading_prefix_cache: bool = False
    mm_features: list = dataclasses.field(default_factory=list)
    prompt_embeds: object = None
    block_hashes: list[bytes] = dataclasses.field(default_factory=list)
    blocks: list[int] = dataclasses.field(default_factory=list)
    resumed: bool = False
    loading: set[int] | None = None

    def __post_init__(self):
        self.hash_more()

    @property
    def num_tokens(self):
        """Prompt and output so far."""
        return len(self.tokens)

    @property
    def all_token_ids(self):
        """The same, one by one."""
        return self.tokens

    def hash_more(self):
        """Names the blocks that have become full."""
        for index in range(len(self.block_hashes), len(self.tokens) // BLOCK_TOKENS):
            parent = self.block_hashes[-1] if self.block_hashes else b"none"
            part = bytes(self.tokens[index * BLOCK_TOKENS : (index + 1) * BLOCK_TOKENS])
            self.block_hashes.append(hashlib.sha256(parent + part).digest())


class CheckedClient(Client):
    """Stores only what is right; anything else is noted."""

    def __init__(self, rank, wrong):
        super().__init__()
        self.rank = rank
        self.wrong = wrong

    def save(self, model, compat_key, keys, sources, **named):
        """Looks at every byte first."""
        for key, source in zip(keys, sources, strict=True):
            found = b"".join(bytes(part) for part in source)
            expected = right(key[:-4], self.rank)
            if key != block_key(key[:-4]) or found != expected:
                self.wrong.append((self.rank, key, found))
        return super().save(model, compat_key, keys, sources, **named)


class Engine:
    """Runs requests to their end. `random`: decides everything that is left open. `depth`: steps in flight.

    `layout`: a part of the name of what each rank stores.
    """

    def __init__(self, random, clients, blocks=24, depth=1, layout="rank"):
        self.random = random
        self.depth = depth
        self.free = list(range(blocks))
        self.cached = {}
        self.names = {}
        self.owners = collections.Counter()
        self.memory = [[bytearray(VALUE_BYTES) for _ in range(blocks)] for _ in range(RANKS)]
        self.spoilt = set()
        self.waiting, self.running = collections.deque(), []
        self.preempted = set()
        self.held = {}
        self.in_flight = collections.deque()
        self.loading, self.loaded = [], collections.deque()
        self.loaded_blocks = 0
        self.failed_blocks = 0
        self.wrong_reads = []
        self.log = Log()
        shards = [Shard("m", f"{layout} {rank}", VALUE_BYTES) for rank in range(RANKS)]
        self.counters = Counters()
        self.now = 0.0
        asked = _Every([Daemon([client], Counters(), self.log) for client in clients])
        self.scheduler = SchedulerHalf(asked, Options(), BLOCK_TOKENS, self.counters, self.log, clock=self._clock)
        self.scheduler.serve(shards, RANKS)
        self.workers = [
            WorkerHalf(
                Daemon([clients[rank]], Counters(), self.log),
                Daemon([clients[rank]], Counters(), self.log),
                shards[rank],
                [(self.memory[rank], 1)],
                BLOCK_TOKENS,
                Options(save_queue_blocks=64),
                Counters(),
                lambda *hashes, **about: None,
            )
            for rank in range(RANKS)
        ]

    def _clock(self):
        # Steps take as long as it happens.
        self.now += self.random.random() / 1000
        return self.now

    def run(self, requests):
        """Until every request has ended."""
        self.waiting.extend(requests)
        deadline = time.monotonic() + STUCK_SECONDS
        while self.waiting or self.loaded or self.running or self.in_flight or self.held or self.loading:
            assert time.monotonic() < deadline, "the engine is stuck"
            if not self.running:
                # Only the background threads have something to do.
                os.sched_yield()
            self._schedule()
            while len(self.in_flight) >= self.depth or (self.in_flight and not self.running):
                self._process(*self.in_flight.popleft())
        for worker in self.workers:
            worker.close()

    # Scheduling.

    def _schedule(self):
        fresh, resumed, grown, scheduled = [], [], [], {}
        budget = self.random.randint(4, 24)
        for request in list(self.running):
            if request not in self.running:
                continue
            count = min(request.num_tokens - request.num_computed_tokens, budget)
            if count <= 0:
                continue
            new = self._grow(request, request.num_computed_tokens + count, scheduled)
            if new is None:
                continue
            grown.append((request, new))
            scheduled[request] = count
            budget -= count
        while (self.loaded or self.waiting) and budget > 0 and self.random.random() < 0.8:
            # Those that hold blocks first, or they would wait for one another.
            queue = self.loaded or self.waiting
            count = self._start(queue[0], budget)
            if count is None:
                break
            request = queue.popleft()
            if count == 0:
                self.loading.append(request)
                continue
            scheduled[request] = count
            budget -= count
            (resumed if request.resumed else fresh).append(request)
            self.running.append(request)
        step = self.scheduler.step(
            _output(
                fresh,
                resumed,
                grown,
                {request.request_id: count for request, count in scheduled.items()},
                self.preempted,
            )
        )
        self.preempted = set()
        for request, count in scheduled.items():
            request.num_computed_tokens += count
            request.num_in_flight_tokens += count
        self.in_flight.append((scheduled, *self._execute(step)))

    def _start(self, request, budget):
        """Makes room. How many tokens to compute, 0 if it has to load first, `None` if there is no room."""
        if request.num_computed_tokens == 0:
            return self._ask(request, budget)
        count = min(request.num_tokens - request.num_computed_tokens, budget)
        needed = max(-(-(request.num_computed_tokens + count) // BLOCK_TOKENS) - len(request.blocks), 0)
        return self._admit(request, request.blocks, needed, request.num_computed_tokens, count)

    def _ask(self, request, budget):
        local = 0
        limit = (request.num_tokens - 1) // BLOCK_TOKENS
        while local < limit and request.block_hashes[local] in self.cached:
            local += 1
        shared = [self.cached[block_hash] for block_hash in request.block_hashes[:local]]
        found = self.scheduler.matched_tokens(request, local * BLOCK_TOKENS)
        if found and (self.loading or self.loaded):
            return None
        assert found % BLOCK_TOKENS == 0
        computed = local * BLOCK_TOKENS + found
        assert computed < request.num_tokens
        count = 0 if found else min(request.num_tokens - computed, budget)
        self._adopt(shared)
        needed = -(-(computed + count) // BLOCK_TOKENS) - local
        if self._admit(request, shared, needed, computed, count, found) is None:
            self._release(shared)
            return None
        self.loaded_blocks += found // BLOCK_TOKENS
        return count

    def _admit(self, request, blocks, needed, computed, count, found=0):
        if needed > len(self.free):
            return None
        request.blocks = blocks + self._take(needed)
        request.num_computed_tokens = computed
        if found:
            request.loading = set(range(RANKS))
        else:
            self._name_full(request, computed + count)
        self.scheduler.allocated(request, request.blocks, found)
        return count

    def _grow(self, request, tokens, scheduled):
        needed = -(-tokens // BLOCK_TOKENS) - len(request.blocks)
        while needed > len(self.free):
            victims = [one for one in self.running if one not in scheduled and one.num_in_flight_tokens == 0]
            if not victims:
                return None
            self._preempt(victims[-1])
            if victims[-1] is request:
                return None
        new = self._take(needed)
        request.blocks.extend(new)
        self._name_full(request, tokens)
        return new

    def _preempt(self, request):
        self.running.remove(request)
        self.preempted.add(request.request_id)
        self._release(request.blocks)
        request.blocks, request.num_computed_tokens, request.resumed = [], 0, True
        self.waiting.appendleft(request)

    # Blocks: shared by hash, given out oldest first, forgotten when they are given out.

    def _take(self, count):
        taken = [self.free.pop(0) for _ in range(count)]
        for block in taken:
            block_hash = self.names.pop(block, None)
            if block_hash is not None and self.cached.get(block_hash) == block:
                del self.cached[block_hash]
            self.owners[block] = 1
        return taken

    def _adopt(self, blocks):
        for block in blocks:
            if self.owners[block] == 0:
                self.free.remove(block)
            self.owners[block] += 1

    def _release(self, blocks):
        for block in reversed(blocks):
            self.owners[block] -= 1
            if self.owners[block] == 0:
                self.free.append(block)

    def _name_full(self, request, tokens):
        for index in range(min(tokens // BLOCK_TOKENS, len(request.block_hashes))):
            block, block_hash = request.blocks[index], request.block_hashes[index]
            if block not in self.names and block_hash not in self.cached:
                self.names[block], self.cached[block_hash] = block_hash, block

    # Execution: what the ranks do with a step.

    def _execute(self, step):
        failed, finished, loaded = set(), [], []
        for worker in self.workers:
            worker.begin(step)
            worker.load(step)
            worker.save(step)
            finished.append(worker.take_finished())
            loaded.append(worker.take_loaded())
            failed |= worker.take_failed_blocks()
        return failed, finished, loaded

    def _compute(self, request, first, end):
        for index in range(first // BLOCK_TOKENS, -(-end // BLOCK_TOKENS)):
            block = request.blocks[index]
            if max(first, index * BLOCK_TOKENS) == index * BLOCK_TOKENS:
                self.spoilt.discard(block)
            if block in self.spoilt or not self._are_right(request, index):
                self.spoilt.add(block)
            is_full = end >= (index + 1) * BLOCK_TOKENS
            for rank in range(RANKS):
                value = b"partial!"
                if is_full:
                    value = b"garbage!" if block in self.spoilt else right(request.block_hashes[index], rank)
                self.memory[rank][block][:] = value

    def _are_right(self, request, count):
        return all(
            self.memory[rank][request.blocks[i]] == right(request.block_hashes[i], rank)
            for rank in range(RANKS)
            for i in range(count)
        )

    # The outcome of a step, as the engine sees it when it comes to it.

    def _process(self, scheduled, failed, finished, loaded):
        for request, count in scheduled.items():
            first = request.num_computed_tokens - request.num_in_flight_tokens
            self._compute(request, first, first + count)
            request.num_in_flight_tokens -= count
        for request in self.loading:
            bad = [i for i, block in enumerate(request.blocks) if block in failed]
            self.failed_blocks += len(bad)
            request.num_computed_tokens = min([request.num_computed_tokens] + [i * BLOCK_TOKENS for i in bad])
        self._end_loads(loaded)
        for request in scheduled:
            is_complete = request.num_computed_tokens == request.num_tokens and request.num_in_flight_tokens == 0
            if request in self.running and is_complete:
                self._advance(request)
        self._count_reports(finished)
        self.scheduler.ended()

    def _end_loads(self, loaded):
        for rank, request_ids in enumerate(loaded):
            for request in [one for one in self.loading if one.request_id in request_ids]:
                request.loading.remove(rank)
                if not request.loading:
                    self.loading.remove(request)
                    self._go_on(request)

    def _go_on(self, request):
        if request.num_computed_tokens == 0:
            self._release(request.blocks)
            request.blocks = []
            self.waiting.appendleft(request)
            return
        self._name_full(request, request.num_computed_tokens)
        self.loaded.append(request)

    def _advance(self, request):
        if not self._are_right(request, request.num_computed_tokens // BLOCK_TOKENS):
            self.wrong_reads.append(request.request_id)
        if request.output_left == 0:
            self.running.remove(request)
            if self.scheduler.finished(request, request.blocks):
                self.held[request.request_id] = [request, RANKS]
            else:
                self._release(request.blocks)
            return
        request.output_left -= 1
        request.tokens.append(sum(request.tokens) % 251)
        request.hash_more()

    def _count_reports(self, finished):
        for request_id in (request_id for rank in finished for request_id in rank):
            self.held[request_id][1] -= 1
            if self.held[request_id][1] == 0:
                self._release(self.held.pop(request_id)[0].blocks)


class _Every:
    """Look-ups over the daemons of several ranks, each with a dictionary of its own."""

    def __init__(self, daemons):
        self.daemons = daemons

    def close(self):
        """Ends the connections."""
        for daemon in self.daemons:
            daemon.close()

    def ready(self, shards, keys):
        """The shortest prefix of all ranks."""
        return min(
            (daemon.ready([shard], keys) for daemon, shard in zip(self.daemons, shards, strict=True)),
            key=len,
        )


def _output(fresh, resumed, grown, counts, preempted):
    """The parts of vLLM's `SchedulerOutput` that are read."""
    return types.SimpleNamespace(
        num_scheduled_tokens=counts,
        total_num_scheduled_tokens=sum(counts.values()),
        preempted_req_ids=preempted or None,
        scheduled_new_reqs=[
            types.SimpleNamespace(
                req_id=request.request_id,
                block_ids=(list(request.blocks),),
                num_computed_tokens=request.num_computed_tokens,
            )
            for request in fresh
        ],
        scheduled_cached_reqs=types.SimpleNamespace(
            req_ids=[request.request_id for request in resumed] + [request.request_id for request, _ in grown],
            resumed_req_ids={request.request_id for request in resumed},
            new_block_ids=[(list(request.blocks),) for request in resumed]
            + [(list(new),) if new else None for _, new in grown],
            num_computed_tokens=[request.num_computed_tokens for request in resumed]
            + [request.num_computed_tokens for request, _ in grown],
        ),
    )

"""The scheduler's half: which blocks a request is asked for, loaded into and saved from.

Four rules carry the correctness.

* **Nothing is computed from a block before every rank has loaded it.** A request waits beside the batch until its load
  is reported; what failed is reported with it, and the engine computes from there on. (Loading in the step that
  computes would let other requests share a block whose load then fails, on one rank only perhaps.)
* **A block is saved only when the engine has seen the outcome of the step that computed it.** Before that the step may
  still be running.
* **The last token is always computed**, never loaded: its logits are needed.
* **A saved block's memory stays what it was until it was copied**: blocks of a finished request are held until the
  workers have reported it, and each step names the blocks it hands out anew, so that they can let go of them first.

Requests, their hashes and their blocks are the engine's objects; only attributes are read. One cache group.
"""

import dataclasses

from infera_kvd.engine.loader import AT_ONCE
from infera_kvd.vllm.choice import worth_loading

# How long an answer is relied upon before the daemon is asked again: a third of the default promise window.
ANSWER_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Load:
    """Blocks of one request to be filled: (hash, block id) in prefix order; without a hash one fails.

    `seconds`: how long they would take to compute; a load that takes longer is given up. `None`: not known, no such limit.
    """

    request_id: str
    blocks: tuple[tuple[bytes | None, int], ...]
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Save:
    """Blocks of one request to be stored: (hash, hash of the block before it or None, block id) in prefix order.

    `router_hashes`: what routers call the same blocks; empty if that is not known.
    """

    request_id: str
    blocks: tuple[tuple[bytes, bytes | None, int], ...]
    retention: str
    ttl_seconds: float | None
    lora: str | None
    salt: str | None
    router_hashes: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Step:
    """What the workers do in one step. `written`: blocks that the step hands out anew."""

    loads: tuple[Load, ...] = ()
    saves: tuple[Save, ...] = ()
    written: frozenset[int] = frozenset()
    held: frozenset[str] = frozenset()


# Most steps.
NOTHING = Step()


@dataclasses.dataclass
class _Answer:
    """What is stored of blocks `first` up to before `end`. `count`: how many are worth loading, in `seconds`.

    `compute_seconds`: what one block takes to compute, `None` if that is not known.
    """

    first: int
    end: int
    at: float
    found: int = 0
    count: int = 0
    seconds: float = 0.0
    compute_seconds: float | None = None


@dataclasses.dataclass
class _Track:
    """One request. `saved`: blocks below this number are stored, being stored, or came from the store.

    `router_hashes`: what routers call its first blocks.
    """

    request: object
    keep: object
    answer: _Answer | None = None
    is_loading: bool = False
    gave_up: bool = False
    blocks: list[int] = dataclasses.field(default_factory=list)
    saved: int = 0
    has_saves: bool = False
    router_hashes: list[int] = dataclasses.field(default_factory=list)


class Planner:
    """Bookkeeping of one engine's requests.

    `ready(hashes, first, end)`: for each block of this range that is stored, from the first on, after how many seconds
    it can be loaded. `names`: what blocks are called. `keep_of(request)`: how its blocks are kept. `speed`: what computing takes, see `speed.py`.
    `clock()`: seconds. `router_hashes`: `infera_kvd.router_hashes`, or `None` for nobody to be told.
    """

    def __init__(self, block_tokens, names, ready, keep_of, speed, counters, log, clock, router_hashes=None):
        if block_tokens < 1:
            raise ValueError(f"a block of {block_tokens} tokens")
        self._block_tokens = block_tokens
        self._names = names
        self._ready = ready
        self._keep_of = keep_of
        self._speed = speed
        self._counters = counters
        self._log = log
        self._clock = clock
        self._router_hashes = router_hashes
        self._disorder_said = False
        self._tracks = {}
        self._loads = []
        self._saves = []
        self._held = set()
        # Requests whose load was planned and that were not seen since, and when each loading thread should be through.
        self._loading = set()
        self._free_at = [0.0] * AT_ONCE

    def matched_tokens(self, request, computed_tokens):
        """How many tokens behind `computed_tokens` are to be loaded: full blocks that are stored, never all of the
        prompt, and no more than what is loaded sooner than computed.

        The engine asks again for as long as it has no room for the request; the answer is remembered for a while.
        """
        if computed_tokens % self._block_tokens != 0:
            return 0
        # Of such a prompt every token's outcome is wanted, or a load would leave a gap in it.
        if request.skip_reading_prefix_cache:
            return 0
        track = self._track(request)
        # A load from the first block on failed at once: asked again, it would fail again.
        if track.is_loading:
            track.gave_up = True
            self._loading.discard(request.request_id)
        if track.gave_up:
            return 0
        first = computed_tokens // self._block_tokens
        end = min((request.num_tokens - 1) // self._block_tokens, len(request.block_hashes))
        now = self._clock()
        known = track.answer
        if known is None or (known.first, known.end) != (first, end) or now - known.at >= ANSWER_SECONDS:
            track.answer = known = self._ask(request, first, end, now)
        return known.count * self._block_tokens

    def allocated(self, request, block_ids, loaded_tokens):
        """The engine made room: `block_ids` are all blocks of the request, `loaded_tokens` are to be loaded."""
        track = self._track(request)
        # Its blocks are others now, and nothing was computed into them before a step names them.
        track.blocks = []
        answer, track.answer = track.answer, None
        if answer is not None:
            self._counters.add("load_skipped_blocks", answer.found - answer.count)
        if loaded_tokens == 0:
            return
        track.is_loading = True
        self._loading.add(request.request_id)
        count, rest = divmod(loaded_tokens, self._block_tokens)
        is_known = answer is not None and count <= answer.count and answer.first + count <= len(block_ids)
        if rest != 0 or not is_known:
            self._loads.append(self._unloadable(request, block_ids, loaded_tokens))
            return
        # The thread that is free first takes it.
        self._free_at.sort()
        self._free_at[0] = max(self._free_at[0], answer.at + answer.seconds)
        if answer.seconds > 0:
            self._speed.loaded()
        places = range(answer.first, answer.first + count)
        blocks = tuple((self._names.of(request.block_hashes[i]), block_ids[i]) for i in places)
        seconds = None if answer.compute_seconds is None else count * answer.compute_seconds
        self._loads.append(Load(request.request_id, blocks, seconds))

    def step(self, fresh, grown, preempted=()):
        """The plan of the step that is about to run.

        `fresh`: (request id, all its block ids, computed tokens with what was loaded) of requests that start or start
        again. `grown`: (request id, new block ids) of requests that go on. `preempted`: ids of requests that lost their
        blocks.
        """
        written = {block_id for load in self._loads for _, block_id in load.blocks}
        for request_id in preempted:
            # Who gets them is not always told: another connector may load into them.
            if request_id in self._tracks:
                written.update(self._tracks[request_id].blocks)
        for request_id, block_ids, computed_tokens in fresh:
            track = self._tracks.get(request_id)
            if track is None:
                written.update(block_ids)
                continue
            track.blocks = list(block_ids)
            track.saved = computed_tokens // self._block_tokens
            track.is_loading = False
            self._loading.discard(request_id)
            # What lies before is shared with other requests and stays as it is.
            written.update(block_ids[track.saved :])
        for request_id, block_ids in grown:
            written.update(block_ids)
            track = self._tracks.get(request_id)
            if track is not None:
                track.blocks.extend(block_ids)
                self._plan_saves(track)
        if not (self._loads or self._saves or written or self._held):
            return NOTHING
        step = Step(tuple(self._loads), tuple(self._saves), frozenset(written), frozenset(self._held))
        self._loads, self._saves, self._held = [], [], set()
        return step

    def reset(self):
        """The engine dropped its cache, perhaps for other weights. False, and nothing changes, while a load is under way.

        Nothing of the requests that it has is stored: part of them may have been computed before.
        """
        # What waits after its load failed as a whole has no computed tokens and no blocks.
        if self._loads or any(track.is_loading and track.request.num_computed_tokens for track in self._tracks.values()):
            return False
        for track in self._tracks.values():
            track.answer = None
            track.keep = dataclasses.replace(track.keep, stored=False)
        self._names.renew()
        # Routers would count what is stored from now on for every engine with these tokens.
        self._router_hashes = None
        return True

    def finished(self, request, block_ids):
        """The request has ended. True if its blocks must stay until the workers report it."""
        track = self._tracks.pop(request.request_id, None)
        self._loading.discard(request.request_id)
        # While it loads, from us or from another connector, nothing was computed into its blocks that could be saved. The
        # engine holds them for that, and counts on what is not there yet.
        if track is None or track.is_loading or not track.blocks:
            return False
        track.blocks = list(block_ids)
        self._plan_saves(track)
        if track.has_saves:
            self._held.add(request.request_id)
        return track.has_saves

    def _ask(self, request, first, end, now):
        ready = self._ready(request.block_hashes, first, end) if end > first else []
        if not ready:
            return _Answer(first, end, now)
        if not self._loading:
            self._free_at = [0.0] * AT_ONCE
        tokens = len(ready) * self._block_tokens
        seconds = self._speed.seconds(tokens)
        block_seconds = None if seconds is None else seconds / len(ready)
        count = worth_loading(ready, block_seconds, max(min(self._free_at) - now, 0.0))
        return _Answer(first, end, now, len(ready), count, ready[count - 1] if count else 0.0, block_seconds)

    def _unloadable(self, request, block_ids, tokens):
        """A load that fails: the engine waits for tokens that it was not told of, and which blocks it means is not known."""
        if not self._disorder_said:
            self._disorder_said = True
            self._log.error(
                "infera-kvd: vLLM waits for %d tokens of request %s that it was not told of: computing them; said once",
                tokens,
                request.request_id,
            )
        self._counters.add("load_failed_blocks", len(block_ids))
        return Load(request.request_id, tuple((None, block_id) for block_id in block_ids))

    def _track(self, request):
        track = self._tracks.get(request.request_id)
        if track is None:
            track = self._tracks[request.request_id] = _Track(request, self._keep_of(request))
        return track

    def _plan_saves(self, track):
        request = track.request
        # In flight: scheduled in a step whose outcome the engine has not seen.
        accepted = max(request.num_computed_tokens - request.num_in_flight_tokens, 0) // self._block_tokens
        if accepted == track.saved:
            return
        full = min(accepted, len(request.block_hashes), len(track.blocks))
        first = min(track.saved, accepted)
        track.saved = max(first, full)
        if full <= first or not track.keep.stored:
            return
        parent = self._names.of(request.block_hashes[first - 1]) if first > 0 else None
        blocks = []
        for number in range(first, full):
            name = self._names.of(request.block_hashes[number])
            blocks.append((name, parent, track.blocks[number]))
            parent = name
        lora, salt = getattr(request.lora_request, "lora_name", None), request.cache_salt
        routed = self._routed(track, lora, salt)[first:full]
        track.has_saves = True
        keep = track.keep
        self._saves.append(
            Save(request.request_id, tuple(blocks), keep.retention, keep.ttl_seconds, lora, salt, tuple(routed))
        )

    def _routed(self, track, lora, salt):
        """What routers call the request's blocks: by tokens, so none where these are not all."""
        request, known = track.request, track.router_hashes
        if self._router_hashes is None or request.mm_features or request.prompt_embeds is not None:
            return []
        tokens = list(request.all_token_ids[len(known) * self._block_tokens :])
        parent = known[-1] if known else None
        known += self._router_hashes(tokens, self._block_tokens, parent=parent, lora=lora, salt=salt)
        return known

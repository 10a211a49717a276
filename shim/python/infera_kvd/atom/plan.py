"""The scheduler's half of the decisions: which blocks of a prompt are asked for, loaded and saved.

* **Nothing is computed behind a block before every rank has loaded it**: a request is parked until its load is reported.
  A load of which one block failed on one rank has failed, and the prompt is computed.
* **The last token of a prompt is always computed**: its logits are needed.
* **A block is saved once the engine counts its tokens as computed**, and its memory stays what it was until every rank
  has copied it: the blocks of a finished request are held, and those of a request that lost them (nobody says so, its
  table just changes) are named in the step that may hand them out anew, for the workers to let go of them first.
* **One save of a request at a time**: reports name requests, not saves.

ATOM's own hashes of blocks are 64 bits long, which is enough within an engine but not for what others stored: keys are
made here. Requests are ATOM's objects; only `offload_loaded_tokens` is written to them.
"""

import array
import dataclasses
import hashlib
import sys

# How long an answer is relied upon before the daemon is asked again: a third of the default promise window.
ANSWER_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class Load:
    """Blocks of one request to be filled: (hash, block id) in prefix order."""

    request_id: object
    blocks: tuple[tuple[bytes, int], ...]


@dataclasses.dataclass(frozen=True)
class Save:
    """Blocks of one request to be stored: (hash, hash of the block before it or None, block id) in prefix order."""

    request_id: object
    blocks: tuple[tuple[bytes, bytes | None, int], ...]
    keep: object


@dataclasses.dataclass(frozen=True)
class Step:
    """What the workers do before a forward pass. `lost`: blocks that may hold something else from now on."""

    loads: tuple[Load, ...] = ()
    saves: tuple[Save, ...] = ()
    lost: frozenset[int] = frozenset()

    def has_work(self):
        """Whether there is anything to do."""
        return bool(self.loads or self.saves or self.lost)


def block_hashes(tokens, block_tokens):
    """The names of all full blocks: each covers every token up to its end."""
    names, parent = [], b""
    for first in range(0, len(tokens) - block_tokens + 1, block_tokens):
        numbers = array.array("I", tokens[first : first + block_tokens])
        if sys.byteorder == "big":
            numbers.byteswap()
        parent = hashlib.sha256(parent + numbers.tobytes()).digest()
        names.append(parent)
    return names


@dataclasses.dataclass
class _Track:
    """One request. `saved`: blocks below this number are stored, being stored, or came from the store."""

    seq: object
    keep: object
    hashes: list[bytes]
    found: int | None = None
    found_at: float = 0.0
    is_loading: bool = False
    saved: int = 0
    # Blocks that the workers are saving, by place in the prompt; empty as soon as they have reported it.
    saving: dict[int, int] = dataclasses.field(default_factory=dict)
    is_saving: bool = False


class Planner:
    """Bookkeeping of one engine's requests.

    `locate(hashes)`: how many of them are stored, from the first on. `keep_of(seq)`: how its blocks are kept.
    `clock()`: seconds.
    """

    def __init__(self, block_tokens, locate, keep_of, clock):
        self._block_tokens = block_tokens
        self._locate = locate
        self._keep_of = keep_of
        self._clock = clock
        self._tracks = {}
        self._loads = []
        self._lost = set()

    def matched_tokens(self, seq):
        """Tokens of the prompt that are stored behind what the engine has, as far as it says so before it made room."""
        # Placeholders of images are equal tokens, and what stands for them is not looked at.
        if seq.multimodal_data is not None:
            return 0
        track = self._track(seq)
        now = self._clock()
        if track.found is None or now - track.found_at >= ANSWER_SECONDS:
            wanted = track.hashes[: (seq.num_prompt_tokens - 1) // self._block_tokens]
            track.found = self._locate(wanted) if wanted else 0
            track.found_at = now
        return max(track.found * self._block_tokens - seq.num_cached_tokens, 0)

    def allocated(self, seq):
        """The engine made room, and knows now how much of the prompt it has itself: what is behind that is loaded."""
        track = self._own(seq)
        if track is None:
            return
        found, track.found = track.found or 0, None
        first, rest = divmod(seq.num_cached_tokens, self._block_tokens)
        track.saved = first
        if rest == 0 and found > first:
            track.saved, track.is_loading = found, True
            seq.offload_loaded_tokens = found * self._block_tokens
            blocks = tuple((track.hashes[i], seq.block_table[i]) for i in range(first, found))
            self._loads.append(Load(seq.id, blocks))

    def is_loading(self, seq):
        """Whether this request has to wait."""
        track = self._own(seq)
        return track is not None and track.is_loading

    def load_failed(self, request_id):
        """Some rank could not load it: the engine computes, and what it computes is stored anew."""
        track = self._tracks.get(request_id)
        if track is not None:
            track.is_loading = False
            track.saved = track.seq.num_cached_tokens // self._block_tokens

    def saved(self, request_id):
        """Every rank is through with its save."""
        track = self._tracks.get(request_id)
        if track is not None:
            track.is_saving = False
            track.saving.clear()

    def step(self):
        """What the workers do next."""
        for track in list(self._tracks.values()):
            # The engine goes on with a request as soon as its load is reported.
            if track.is_loading and track.seq.num_cached_tokens >= track.seq.offload_loaded_tokens:
                track.is_loading = False
            # Of one that is dropped while it waits nobody says that it has ended.
            if track.seq.is_finished and (track.is_loading or not self.holds(track.seq)):
                del self._tracks[track.seq.id]
        saves = [save for track in self._tracks.values() if (save := self._save(track)) is not None]
        step = Step(tuple(self._loads), tuple(saves), frozenset(self._lost))
        self._loads, self._lost = [], set()
        return step

    def finished(self, seq):
        """The request has ended; perhaps said twice. It is forgotten once its blocks are not needed any more."""
        if self._own(seq) is not None and not self.holds(seq):
            del self._tracks[seq.id]

    def holds(self, seq):
        """Whether the blocks of this request must stay."""
        track = self._own(seq)
        return track is not None and (track.is_loading or track.is_saving or bool(self._unsaved(track)))

    @property
    def has_work(self):
        """Whether something is to be told or awaited without a request that runs."""
        return bool(self._loads or self._lost) or any(
            track.is_saving or (track.seq.is_finished and self._unsaved(track)) for track in self._tracks.values()
        )

    def _own(self, seq):
        track = self._tracks.get(seq.id)
        return track if track is not None and track.seq is seq else None

    def _track(self, seq):
        track = self._own(seq)
        if track is None:
            hashes = block_hashes(seq.token_ids[: seq.num_prompt_tokens], self._block_tokens)
            track = self._tracks[seq.id] = _Track(seq, self._keep_of(seq), hashes)
        return track

    def _unsaved(self, track):
        """The blocks of the prompt that are computed and neither stored nor on their way."""
        if not track.keep.stored:
            return range(0)
        computed = min(track.seq.num_cached_tokens, track.seq.num_prompt_tokens) // self._block_tokens
        return range(track.saved, min(computed, len(track.hashes), len(track.seq.block_table)))

    def _save(self, track):
        table = track.seq.block_table
        if any(place >= len(table) or table[place] != block for place, block in track.saving.items()):
            self._lost.update(track.saving.values())
            track.saving.clear()
        places = self._unsaved(track)
        if track.is_saving or not places:
            return None
        track.saved = places.stop
        track.saving = {place: table[place] for place in places}
        track.is_saving = True
        hashes = track.hashes
        blocks = tuple((hashes[i], hashes[i - 1] if i > 0 else None, table[i]) for i in places)
        return Save(track.seq.id, blocks, track.keep)

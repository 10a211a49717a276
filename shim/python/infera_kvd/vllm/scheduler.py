"""The half of the connector that lives with the engine's scheduler: it asks the daemon what is there and plans."""

import dataclasses
import time

from infera_kvd.engine.keys import BlockKeys, Names
from infera_kvd.engine.options import Keeps
from infera_kvd.vllm.plan import Planner, Step
from infera_kvd.vllm.speed import Speed, prompt_tokens


class SchedulerHalf:
    """One engine's look-ups and plans. Idle until the workers have said what they store (`serve`).

    `loads`, `saves`: which of the two this engine takes part in. `router_hashes`: as the `Planner`'s.
    """

    def __init__(
        self, daemon, options, block_tokens, counters, log, *, loads=True, saves=True, clock=time.monotonic, router_hashes=None
    ):
        self._daemon = daemon
        self._keeps = Keeps(options, log)
        self._log = log
        self._loads = loads
        self._saves = saves
        self._shards = ()
        self._clock = clock
        self._speed = Speed()
        self._names = Names()
        self._planner = Planner(
            block_tokens, self._names, self._ready, self._keep_of, self._speed, counters, log, clock, router_hashes
        )

    def serve(self, shards, ranks):
        """What each rank stores, `None` for one that is not used. A block is there only if every rank has it.

        `ranks`: how many there are. The engine waits for all of them, so that nothing is served if one is missing.
        """
        if len(shards) < ranks:
            self._log.error(
                "infera-kvd is not used: only %d of %d ranks have said what they store; if another connector's hand-shake "
                "took the place of ours, list ours first",
                len(shards),
                ranks,
            )
        elif None not in shards:
            self._shards = tuple(dict.fromkeys(shards))

    @property
    def is_idle(self):
        """Whether nothing is looked up or stored."""
        return not self._shards

    def matched_tokens(self, request, computed_tokens):
        """Tokens behind `computed_tokens` that can be loaded."""
        return 0 if self.is_idle else self._planner.matched_tokens(request, computed_tokens)

    def allocated(self, request, block_ids, loaded_tokens):
        """The engine made room for a request."""
        if not self.is_idle:
            self._planner.allocated(request, block_ids, loaded_tokens)

    def step(self, output):
        """The plan of a step, from the engine's `SchedulerOutput`."""
        if self.is_idle:
            return Step()
        tokens = prompt_tokens(output.num_scheduled_tokens.values(), output.total_num_scheduled_tokens)
        self._speed.planned(tokens, self._clock())
        fresh = [(new.req_id, new.block_ids[0], new.num_computed_tokens) for new in output.scheduled_new_reqs]
        grown = []
        going_on = output.scheduled_cached_reqs
        for index, request_id in enumerate(going_on.req_ids):
            new_ids = going_on.new_block_ids[index]
            ids = new_ids[0] if new_ids else []
            if request_id in going_on.resumed_req_ids:
                fresh.append((request_id, ids, going_on.num_computed_tokens[index]))
            else:
                grown.append((request_id, ids))
        return self._planner.step(fresh, grown, output.preempted_req_ids or ())

    def ended(self):
        """The outcome of the oldest step that was planned has come."""
        self._speed.ended(self._clock())

    def finished(self, request, block_ids):
        """A request ended. True if its blocks must stay."""
        return False if self.is_idle else self._planner.finished(request, block_ids)

    def reset(self):
        """The engine dropped its cache. False if that is too early: a load is under way."""
        if not self._planner.reset():
            return False
        self._log.info("infera-kvd: the engine's cache was reset: what was stored before is not used by it any more")
        return True

    def close(self):
        """Ends the connection."""
        self._daemon.close()

    def _ready(self, hashes, first, end):
        return self._daemon.ready(self._shards, BlockKeys(self._names, hashes, first, end)) if self._loads else []

    def _keep_of(self, request):
        keep = self._keeps.of(request.request_id, request.kv_transfer_params)
        return keep if self._saves else dataclasses.replace(keep, stored=False)

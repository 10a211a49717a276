"""The half of the connector that lives with ATOM's scheduler: it asks the daemon what is there and plans."""

import dataclasses
import logging
import time

import infera_kvd
from atom.kv_transfer.disaggregation.base import KVConnectorSchedulerBase
from atom.kv_transfer.disaggregation.types import ConnectorMetadata

from infera_kvd.atom import environment
from infera_kvd.atom.plan import Planner, Step
from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.errors import Refused, say_unused
from infera_kvd.engine.keys import block_key
from infera_kvd.engine.options import Keeps, engine_options

# Below ATOM's own name, so that its log level and format hold for us too.
log = logging.getLogger("atom.infera_kvd")


class StepMetadata(ConnectorMetadata):
    """From the scheduler to the ranks, before each forward pass."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def has_work(self):
        """Whether the workers have anything to do; ATOM does not pass it on otherwise."""
        return self.step.has_work()


class InferaKvdScheduler(KVConnectorSchedulerBase):
    """Look-ups and plans of one engine. One that is refused finds nothing and stores nothing."""

    is_producer = False
    # A request that was parked goes on with the rest of its prompt.
    is_offload = True

    def __init__(self, config):
        self._planner = None
        self._seen_requests = False
        try:
            environment.check(config)
            self._loads, self._saves = environment.role(config)
            self._options = engine_options(environment.extra(config))
            self._keeps = Keeps(self._options, log)
            self._shards, _ = environment.shards(config, self._options)
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            say_unused(log, error)
            return
        client = infera_kvd.Client(
            self._options.socket, client_id="atom-scheduler", deadline=self._options.deadline_seconds
        )
        self._daemon = Daemon([client], Counters(), log, self._options.socket or "its default socket")
        self._planner = Planner(environment.block_tokens(config), self._locate, self._keep_of, time.monotonic)

    def get_num_new_matched_tokens(self, seq):
        """How many tokens of the prompt are stored, and whether they have to be waited for."""
        if self._planner and not self._seen_requests:
            self._seen_requests = True
            try:
                environment.check_request(seq)
            except Refused as error:
                log.error("infera-kvd is not used: %s", error)
                self._planner = None
        found = self._planner.matched_tokens(seq) if self._planner else 0
        return found, found > 0

    def update_state_after_alloc(self, seq):
        """The engine made room for a request."""
        if self._planner:
            self._planner.allocated(seq)

    def should_park_for_load_after_alloc(self, seq):
        """Whether there is something to load behind what the engine has itself."""
        return self._planner.is_loading(seq) if self._planner else False

    def build_connector_meta(self):
        """What the workers do before the next forward pass."""
        return StepMetadata(self._planner.step() if self._planner else Step())

    def request_finished(self, seq):
        """The request ended."""
        if self._planner:
            self._planner.finished(seq)

    def should_defer_free(self, seq):
        """Whether its blocks must stay."""
        return self._planner.holds(seq) if self._planner else False

    def save_finished(self, req_id):
        """Every rank is through with a save."""
        if self._planner:
            self._planner.saved(req_id)

    def load_failed(self, req_id):
        """A load failed on some rank: the prompt is computed."""
        if self._planner:
            self._planner.load_failed(req_id)

    def has_pending_work(self):
        """Whether the engine has to go on stepping for us."""
        return bool(self._planner and self._planner.has_work)

    def _locate(self, hashes):
        if not self._loads:
            return 0
        return self._daemon.locate(self._shards, [block_key(block_hash) for block_hash in hashes])

    def _keep_of(self, seq):
        keep = self._keeps.of(seq.id, seq.kv_transfer_params)
        # Of images nothing is stored either: see `Planner.matched_tokens`.
        stored = keep.stored and self._saves and seq.multimodal_data is None
        return dataclasses.replace(keep, stored=stored)

"""What vLLM calls: the two halves of the connector behind one class, made once for the scheduler and once a rank.

Nothing here decides; see `scheduler.py` and `worker.py`. Whatever is wrong with the set-up, the engine runs: the
connector says why in one line and stays out of the way.
"""

import contextlib
import dataclasses

import infera_kvd
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.logger import init_logger

from infera_kvd.engine.counters import Counters, in_words
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.errors import Refused, say_unused
from infera_kvd.engine.keys import Shard
from infera_kvd.engine.loader import AT_ONCE
from infera_kvd.engine.options import engine_options
from infera_kvd.vllm import environment, layout
from infera_kvd.vllm.plan import Step
from infera_kvd.vllm.report import Metrics, Report
from infera_kvd.vllm.scheduler import SchedulerHalf
from infera_kvd.vllm.worker import WorkerHalf

try:
    from vllm.v1.metrics.cache_hit_source import CacheHitSource
except ImportError:
    # Before 0.32 vLLM does not count where hits come from.
    CacheHitSource = None

# Below vLLM's own name, so that its log level and format hold for us too.
log = init_logger("vllm.infera_kvd")


@dataclasses.dataclass
class StepMetadata(KVConnectorMetadata):
    """From the scheduler to the ranks, each step."""

    step: Step


@dataclasses.dataclass
class RankMetadata(KVConnectorHandshakeMetadata):
    """From a rank to the scheduler, once. `shard`: what the rank stores, `None` if it refused."""

    shard: Shard | None


class InferaKvdConnector(KVConnectorBase_V1, SupportsHMA):
    """Blocks of the engine's prefix cache, kept by the infera-kvd of this host across requests, engines and restarts."""

    if CacheHitSource is not None:
        _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        self._counters = Counters()
        self._scheduler = None
        self._worker = None
        self._rank = None
        self._options = None
        is_scheduler = role == KVConnectorRole.SCHEDULER
        try:
            reason = environment.refusal(vllm_config)
            if reason is not None:
                raise Refused(reason)
            layout.check_groups(environment.groups(kv_cache_config))
            self._block_tokens = environment.block_tokens(kv_cache_config)
            self._options = engine_options(self._kv_transfer_config.kv_connector_extra_config)
            if is_scheduler:
                self._scheduler = self._scheduler_half()
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            self._options = None
            # One of the halves says it.
            if is_scheduler:
                say_unused(log, error)

    # For the class alone: asked by vLLM before there is an object.

    @classmethod
    def build_kv_connector_stats(cls, data=None):
        """An interval's numbers as vLLM passes them on."""
        return Report(data=data or {})

    @classmethod
    def build_prom_metrics(cls, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        """The Prometheus counters."""
        return Metrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @property
    def requires_kv_delivery(self):
        """False: a save that is dropped is a miss later, nothing else."""
        return False

    # The scheduler's half.

    def set_xfer_handshake_metadata_pp_aware(self, metadata):
        """What each rank stores. Others' metadata is not ours to read."""
        if self._scheduler is None:
            return
        shards = [rank.shard for rank in metadata.values() if isinstance(rank, RankMetadata)]
        self._scheduler.serve(shards, environment.ranks(self._vllm_config))

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        """Tokens that can be loaded, and whether the request has to wait for them."""
        tokens = self._scheduler.matched_tokens(request, num_computed_tokens) if self._scheduler else 0
        return tokens, tokens > 0

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        """The blocks are there."""
        if self._scheduler:
            self._scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        """What the ranks shall do in this step."""
        return StepMetadata(self._scheduler.step(scheduler_output) if self._scheduler else Step())

    def take_events(self):
        """No events; asked for when the outcome of a step has been taken in, and so what tells that it has come."""
        if self._scheduler:
            self._scheduler.ended()
        return ()

    def request_finished(self, request, block_ids):
        """The request ended."""
        return (self._scheduler.finished(request, block_ids) if self._scheduler else False), None

    def request_finished_all_groups(self, request, block_ids):
        """The same, with the blocks of each group; there is one."""
        return self.request_finished(request, block_ids[0] if block_ids else [])

    def reset_cache(self):
        """The engine drops its cache, perhaps because it got other weights. False if it has to ask again."""
        return self._scheduler.reset() if self._scheduler else None

    # The half of a rank.

    def register_kv_caches(self, kv_caches):
        """The cache is there. From here on its layout is known, and with it the namespace."""
        # Also from a rank that is not used: the others would be waited for in vain.
        self._rank = RankMetadata(None)
        if self._options is None:
            return
        try:
            self._worker = self._worker_half(kv_caches)
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            say_unused(log, error)

    def get_handshake_metadata(self):
        """What this rank stores."""
        return self._rank

    def handle_preemptions(self, kv_connector_metadata):
        """Before anything is written."""
        if self._worker:
            self._worker.begin(kv_connector_metadata.step)

    def start_load_kv(self, forward_context, **kwargs):
        """Begins the loads of this step, which no forward pass waits for."""
        if self._worker:
            self._worker.load(self._get_connector_metadata().step)

    def wait_for_layer_load(self, layer_name):
        """Nothing to wait for."""

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        """Nothing: whole blocks are saved, once their step is accepted."""

    def wait_for_save(self):
        """Queues the saves of this step; their memory is held or watched until they are done."""
        if self._worker:
            self._worker.save(self._get_connector_metadata().step)

    def get_finished(self, finished_req_ids):
        """Requests whose blocks need not be held any longer, and requests whose load has ended."""
        if self._worker is None:
            return None, None
        return self._worker.take_finished() or None, self._worker.take_loaded() or None

    def get_block_ids_with_load_errors(self):
        """Blocks that hold nothing: the engine computes them."""
        return self._worker.take_failed_blocks() if self._worker else set()

    # Both halves.

    def get_kv_connector_stats(self):
        """What was counted since the last call."""
        taken = self._counters.take()
        return Report(data=taken) if taken else None

    def shutdown(self):
        """Stores what is waiting, says what was done, and ends the connection."""
        for half in (self._scheduler, self._worker):
            if half is not None:
                half.close()
        if self._scheduler or self._worker:
            log.info("infera-kvd, %s: %s", self._role.name.lower(), in_words(self._counters.totals()) or "nothing done")
        self._scheduler = self._worker = None

    def _daemon(self, part, connections=1):
        options = self._options
        client_id = f"vllm-{part}-{self._kv_transfer_config.engine_id}"
        clients = [
            infera_kvd.Client(options.socket, client_id=client_id, deadline=options.deadline_seconds)
            for _ in range(connections)
        ]
        return Daemon(clients, self._counters, log, options.socket or "its default socket")

    def _scheduler_half(self):
        transfer = self._kv_transfer_config
        for warning in (environment.unstable_hashes(self._vllm_config), _failure_policy(transfer)):
            if warning:
                log.warning("infera-kvd: %s", warning)
        return SchedulerHalf(
            self._daemon("scheduler"),
            self._options,
            self._block_tokens,
            self._counters,
            log,
            loads=transfer.is_kv_consumer,
            saves=transfer.is_kv_producer,
            router_hashes=infera_kvd.router_hashes,
        )

    def _worker_half(self, kv_caches):
        config = self._kv_cache_config
        replicated = layout.check_groups(environment.groups(config))
        names = [name for name in config.kv_cache_groups[0].layer_names if name in kv_caches]
        layers = environment.describe({name: kv_caches[name] for name in names})
        pages = layout.pages_of(layers, config.num_blocks)
        shard, parts = environment.shard(self._vllm_config, config, layers, pages, self._options, replicated)
        log.info("infera-kvd: model %s, compat_key %s, %d bytes a block: %s", shard.model, shard.compat_key,
                 shard.block_bytes, parts)
        self._rank = RankMetadata(shard)
        return WorkerHalf(
            self._daemon("load", AT_ONCE),
            self._daemon("save"),
            shard,
            [(environment.rows(kv_caches[page.name], page), page.per_block) for page in pages],
            self._block_tokens,
            self._options,
            self._counters,
            infera_kvd.Lineage,
            stores=environment.stores(replicated),
        )


def _failure_policy(transfer):
    if transfer.kv_load_failure_policy == "recompute":
        return None
    return (
        'a request whose load fails will end with an error: set "kv_load_failure_policy": "recompute" beside '
        '"kv_connector" to have it computed instead'
    )


# A MultiConnector looks for its parts in here, by name, when it passes on what they counted; without, the engine ends.
with contextlib.suppress(ValueError):
    KVConnectorFactory.register_connector(InferaKvdConnector.__name__, __name__, InferaKvdConnector.__name__)

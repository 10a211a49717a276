"""A tier for vLLM's own offloading: rows of its host memory, kept by the infera-kvd of this host.

    "secondary_tiers": [{"type": "InferaKvdTier", "module_path": "infera_kvd.vllm.tier"}]

in the configuration of an `OffloadingConnector` with `TieringOffloadingSpec`. Reading order: this file (what vLLM
calls), `tier_rows.py` (what is decided), `tier_lookups.py` and `tier_transfers.py` (what runs beside the scheduler),
`tier_environment.py` (what the engine is). Only this file and the last import vLLM.

Whatever is wrong with the set-up, the engine runs: the tier says why in one line and has nothing.
"""

import infera_kvd
import numpy
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.logger import init_logger
from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager

from infera_kvd.engine.counters import NAMES, Counters, in_words
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.errors import say_unused
from infera_kvd.engine.options import engine_options
from infera_kvd.vllm import environment, tier_environment
from infera_kvd.vllm.tier_rows import Connections, RowStore, TierRequest

# Below vLLM's own name, so that its log level and format hold for us too.
log = init_logger("vllm.infera_kvd")
METRIC = "vllm:infera_kvd_tier_"
ANSWERS = {True: LookupResult.HIT, False: LookupResult.MISS, None: LookupResult.RETRY}


class InferaKvdTier(SecondaryTierManager):
    """Rows of the primary tier, kept across requests, engines and restarts. Options: those of the connector."""

    # The daemon's arena, or its disks by way of the arena.
    medium = Medium.CPU

    def __init__(self, offloading_spec, primary_kv_view, tier_type, backpressure_detector=None, **extra):
        # vLLM 0.30 has none, and there it is to be refused in peace.
        pressure = () if backpressure_detector is None else (backpressure_detector,)
        super().__init__(offloading_spec, primary_kv_view, tier_type, *pressure)
        self.locality = Locality.LOCAL
        self._counters = Counters()
        self._rows = None
        # Jobs that were handed to a tier that is not in use.
        self._unserved = []
        try:
            self._rows = self._row_store(engine_options(extra))
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            say_unused(log, error)

    @classmethod
    def build_metric_definitions(cls, extra_config):
        """The Prometheus counters."""
        return {
            METRIC + name: OffloadingCounterMetadata(documentation=f"infera-kvd tier: {name.replace('_', ' ')}.")
            for name in NAMES
        }

    def on_new_request(self, req_context):
        """A request begins. Rows are stored as they are computed: nothing is needed again for a request as a whole."""
        self._request(req_context)
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        """Whether a row is stored, or that it is being asked for."""
        return ANSWERS[self._rows.lookup(key)] if self._rows else LookupResult.MISS

    def on_schedule_end(self, context):
        """The end of a step: asks what it wanted to know."""
        if self._rows:
            self._rows.step_ends()

    def submit_store(self, job_metadata):
        """Begins to store rows."""
        job = job_metadata
        if self._rows is None:
            self._unserved.append(JobResult(job.job_id, success=False))
            return
        self._rows.store(job.job_id, tuple(job.keys), job.chunk_ids.tolist(), self._request(job.req_context))

    def submit_load(self, job_metadata):
        """Begins to fill rows."""
        job = job_metadata
        if self._rows is None:
            self._unserved.append(JobResult(job.job_id, success=False))
            return
        self._rows.load(job.job_id, tuple(job.keys), job.chunk_ids.tolist())

    def get_finished_jobs(self):
        """The jobs that have ended. A store of which a row was not stored counts as failed; so does a load."""
        results, self._unserved = self._unserved, []
        for job in self._rows.take_finished() if self._rows else ():
            results.append(
                JobResult(
                    job.job_id,
                    success=not job.failed,
                    successful_keys=job.done if job.is_load else None,
                    transfer_time=job.seconds,
                    transfer_bytes=len(job.done) * self.block_size_bytes,
                )
            )
        return results

    def drain_jobs(self):
        """The engine drops its cache: every job ends, and what was stored so far is not used by this engine again."""
        if self._rows:
            self._rows.drain()
            self._rows.forget()
            log.info("infera-kvd: the engine dropped its cache, so nothing stored before is used by it again")

    def get_stats(self):
        """What was counted since the last call."""
        taken = self._counters.take()
        if not taken:
            return None
        stats = OffloadingConnectorStats()
        for name, count in taken.items():
            stats.increase_counter(METRIC + name, count)
        return stats

    def shutdown(self):
        """Stores what is waiting, says what was done, and ends threads and connections."""
        if self._rows:
            self._rows.close()
            log.info("infera-kvd, tier: %s", in_words(self._counters.totals()) or "nothing done")
        self._rows = None

    def _row_store(self, options):
        offloading = self._offloading_spec.config
        vllm_config, kv_cache_config = tier_environment.configurations()
        shard, parts = tier_environment.shard(
            vllm_config, kv_cache_config, offloading, self.block_size_bytes, options
        )
        warning = environment.unstable_hashes(vllm_config)
        if warning:
            log.warning("infera-kvd: %s", warning)
        log.info(
            "infera-kvd tier: model %s, compat_key %s, %d bytes a row: %s",
            shard.model,
            shard.compat_key,
            shard.block_bytes,
            parts,
        )
        return RowStore(
            Connections(*(self._daemon(part, options) for part in ("lookup", "load", "save"))),
            shard,
            numpy.asarray(self._primary_kv_view).view(numpy.uint8),
            tier_environment.chunk_tokens(offloading),
            options,
            self._counters,
            infera_kvd.Lineage,
            log,
        )

    def _daemon(self, part, options):
        client_id = f"vllm-tier-{part}-{self._offloading_spec.config.engine_id}"
        client = infera_kvd.Client(options.socket, client_id=client_id, deadline=options.deadline_seconds)
        return Daemon([client], self._counters, log, f"{options.socket or 'its default socket'} ({part})")

    def _request(self, req_context):
        """What is known of a request; made at its first call."""
        request = req_context.get_state(TierRequest)
        if request is None and self._rows:
            # The keys' places, which vLLM lets a tier ask for one key at a time; a parent is another key.
            positions = req_context._offload_key_positions
            request = self._rows.request(req_context.req_id, req_context.kv_transfer_params, positions)
            req_context.set_state(request)
        return request

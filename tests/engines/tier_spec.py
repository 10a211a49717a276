"""vLLM's tiered offloading on a CPU, for tests: its own spec copies with a GPU's streams only.

    "spec_name": "TieringOnCpu", "spec_module_path": "tier_spec"

Everything is vLLM's own but the worker, which copies with the CPU, within the call. One cache group.
"""

import time

from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class CopyingWorker(OffloadingWorker):
    """Moves blocks between the engine's cache and the rows that all tiers see."""

    def __init__(self, caches, region, blocks_per_chunk):
        (_,) = caches.group_data_refs
        self._region = region
        self._blocks_per_chunk = blocks_per_chunk
        # For each layer: the cache, (blocks, bytes), and the same layer's part of the rows, (chunks, blocks, bytes).
        self._layers = [
            (one.tensor, self._part_of_rows(one.page_size_bytes)) for one in caches.tensors
        ]
        self._finished = []

    def submit_store(self, job_id, src_spec, dst_spec):
        """From the cache to the rows."""
        self._move(job_id, src_spec, dst_spec, lambda block, row: row.copy_(block))
        return True

    def submit_load(self, job_id, src_spec, dst_spec):
        """From the rows to the cache."""
        self._move(job_id, dst_spec, src_spec, lambda block, row: block.copy_(row))
        return True

    def get_finished(self):
        """What has ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids):
        """Nothing to wait for."""

    def shutdown(self):
        """Lets go of the rows."""
        self._layers.clear()
        self._region.cleanup()

    def _part_of_rows(self, page_bytes):
        part = self._region.create_next_worker_view(page_bytes * self._blocks_per_chunk)
        return part.unflatten(1, (self._blocks_per_chunk, page_bytes))

    def _move(self, job_id, cache_spec, rows_spec, copy):
        begun = time.monotonic()
        # The first block may be in the middle of its chunk.
        first = cache_spec.block_indices[0] % self._blocks_per_chunk
        for index, block in enumerate(cache_spec.block_ids.tolist(), first):
            chunk, place = divmod(index, self._blocks_per_chunk)
            for cache, rows in self._layers:
                copy(cache[block], rows[int(rows_spec.block_ids[chunk]), place])
        moved = len(cache_spec.block_ids) * sum(cache.shape[1] for cache, _ in self._layers)
        self._finished.append(TransferResult(job_id, True, moved, time.monotonic() - begun))


class TieringOnCpu(TieringOffloadingSpec):
    """The spec with that worker."""

    def get_worker(self, kv_caches):
        """The worker of this rank."""
        if self._worker is None:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._worker = CopyingWorker(kv_caches, region, self.blocks_per_chunk)
        return self._worker

"""The connector's numbers in vLLM's words: its periodic log line and its Prometheus metrics."""

import dataclasses

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)
from vllm.v1.metrics.utils import create_metric_per_engine

from infera_kvd.engine.counters import NAMES, added


@dataclasses.dataclass
class Report(KVConnectorStats):
    """What was counted in an interval, summed over ranks. `data`: name to count."""

    def reset(self):
        """Begins a new interval."""
        self.data = {}

    def aggregate(self, other):
        """Takes in what another rank or another interval counted."""
        if not other.is_empty():
            self.data = added(self.data, other.data)
        return self

    def reduce(self):
        """What the log line shows."""
        return {f"infera_kvd_{name}": self.data[name] for name in NAMES if self.data.get(name)}

    def is_empty(self):
        """Whether nothing was counted."""
        return not self.data


class Metrics(KVConnectorPromMetrics):
    """`vllm:infera_kvd_<name>_total`, one counter for each name."""

    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: create_metric_per_engine(
                self._counter_cls(
                    name=f"vllm:infera_kvd_{name}",
                    documentation=f"infera-kvd connector: {name.replace('_', ' ')}.",
                    labelnames=labelnames,
                ),
                per_engine_labelvalues,
            )
            for name in NAMES
        }

    def observe(self, transfer_stats_data, engine_idx=0):
        """Adds what one interval counted."""
        for name, count in transfer_stats_data.items():
            if name in self._counters:
                self._counters[name][engine_idx].inc(count)

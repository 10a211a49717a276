"""Our connector and our tier of vLLM with traps: see `traps.py`. What is not overridden is the real one."""

import traps

from infera_kvd.vllm.connector import InferaKvdConnector
from infera_kvd.vllm.tier import InferaKvdTier


class MeddlingConnector(InferaKvdConnector):
    """The connector with traps in its worker's half."""

    def register_kv_caches(self, kv_caches):
        """Lays them."""
        super().register_kv_caches(kv_caches)
        for daemon in (self._worker._loads_from, self._worker._saves_to):
            traps.lay(daemon)


class MeddlingTier(InferaKvdTier):
    """The tier with traps."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        for daemon in (self._rows._connections.loads, self._rows._connections.saves):
            traps.lay(daemon)

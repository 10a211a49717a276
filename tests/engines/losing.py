"""A connector whose ranks lose blocks between look-up and load, each rank others, by chance from a seed.

    KVD_LOSING_SEED=N      which blocks; the rank's own name in the daemon is part of the seed

Used through `kv_connector_module_path`. What is lost is asked for under a name that nobody has stored, so that the
miss is the daemon's own. Everything else is the real connector.
"""

import os
import random

from infera_kvd.vllm.connector import InferaKvdConnector

# Of a rank's loads, and of the blocks of a load that loses some.
LOADS, BLOCKS = 0.6, 0.5


class LosingConnector(InferaKvdConnector):
    """The connector with holes in its worker's half."""

    def register_kv_caches(self, kv_caches):
        """Tears the holes."""
        super().register_kv_caches(kv_caches)
        daemon = self._worker._loads_from
        load = daemon.load

        def lossy(shard, keys, *others):
            if draw.random() < LOADS:
                keys = [key + b"lost" if draw.random() < BLOCKS else key for key in keys]
            return load(shard, keys, *others)

        draw = random.Random(f"{os.environ['KVD_LOSING_SEED']} {self._rank.shard.compat_key}")
        daemon.load = lossy

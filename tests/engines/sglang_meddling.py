"""Our backends of SGLang with traps: see `traps.py`. What is not overridden is the real one."""

import traps

from infera_kvd.sglang import InferaKvdLinker, InferaKvdStorage


class MeddlingStorage(InferaKvdStorage):
    """The storage backend with traps."""

    def __init__(self, storage_config, kwargs):
        super().__init__(storage_config, kwargs)
        traps.lay(self._daemon)


class MeddlingLinker(InferaKvdLinker):
    """The linker with traps."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        traps.lay(self._daemon)

    def reset(self):
        """Without becoming private: that its cache was dropped is how these tests have the engine ask again."""
        store = self._linking._store
        shard = store._shard
        super().reset()
        store._shard = shard

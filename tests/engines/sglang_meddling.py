"""Backends that kill the daemon at the worst moment. Used by e2e_sglang.py; what is not overridden is the real backend.

    KVD_TRIGGER=PATH KVD_PID_FILE=PATH

When the file KVD_TRIGGER names a moment, the process that KVD_PID_FILE names is killed there, once. A moment is a call of
the backend's to the daemon, `load`, `fetch` or `save`, or `after fetch`: what is fetched is pinned by then.
"""

import os
import pathlib
import signal

from infera_kvd.sglang import InferaKvdLinker, InferaKvdStorage


def kill_at(moment):
    """Kills, if this is the moment."""
    trigger = pathlib.Path(os.environ["KVD_TRIGGER"])
    if trigger.exists() and trigger.read_text() == moment:
        trigger.unlink()
        pid = int(pathlib.Path(os.environ["KVD_PID_FILE"]).read_text())
        os.kill(pid, signal.SIGKILL)
        print(f"MEDDLING killed {pid} at {moment}", flush=True)


def lay_traps(daemon):
    """At every call that moves bytes."""
    for call in ("load", "fetch", "save"):
        setattr(daemon, call, _trapped(call, getattr(daemon, call)))


def _trapped(name, call):
    def trapped(*arguments):
        kill_at(name)
        answer = call(*arguments)
        kill_at(f"after {name}")
        return answer

    return trapped


class MeddlingStorage(InferaKvdStorage):
    """The storage backend with traps."""

    def __init__(self, storage_config, kwargs):
        super().__init__(storage_config, kwargs)
        lay_traps(self._daemon)


class MeddlingLinker(InferaKvdLinker):
    """The linker with traps."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        lay_traps(self._daemon)

    def reset(self):
        """Without becoming private: that its cache was dropped is how these tests have the engine ask again."""
        store = self._linking._store
        shard = store._shard
        super().reset()
        store._shard = shard

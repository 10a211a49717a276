"""A tier that kills the daemon at the worst moment: with rows on their way in, or on their way out.

    KVD_KILL_AT=load,save KVD_PID_FILE=PATH      at each of these moments, in this order, the process named in the file

Used by `e2e_tier.py` through `module_path`. Everything else is the real tier.
"""

import os
import pathlib
import signal

from infera_kvd.vllm.tier import InferaKvdTier


class MeddlingTier(InferaKvdTier):
    """The tier with a killer at its connections."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self._killed = set()
        self._moments = os.environ["KVD_KILL_AT"].split(",")
        connections = self._rows._connections
        for daemon, call in ((connections.loads, "load"), (connections.saves, "save")):
            setattr(daemon, call, self._trap(call, getattr(daemon, call)))

    def _trap(self, moment, go_on):
        def wrapped(*arguments):
            pid = int(pathlib.Path(os.environ["KVD_PID_FILE"]).read_text())
            # One kill a daemon: the next moment waits for the next one.
            if self._moments[:1] == [moment] and pid not in self._killed:
                self._moments.pop(0)
                self._killed.add(pid)
                os.kill(pid, signal.SIGKILL)
                print(f"MEDDLING killed {pid} at {moment}", flush=True)
            return go_on(*arguments)

        return wrapped

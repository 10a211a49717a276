"""A connector that kills the daemon at the worst moment: between the look-up and the load, or with a save on its way.

    KVD_KILL_AT=load,save KVD_PID_FILE=PATH      at each of these moments, in this order, the process named in the file

Used by `e2e_vllm.py` through `kv_connector_module_path`. Everything else is the real connector.
"""

import os
import pathlib
import signal

from infera_kvd.vllm.connector import InferaKvdConnector


class MeddlingConnector(InferaKvdConnector):
    """The connector with a killer in its worker's half."""

    def register_kv_caches(self, kv_caches):
        """Lays the traps."""
        super().register_kv_caches(kv_caches)
        self._killed = set()
        self._moments = [moment for moment in os.environ["KVD_KILL_AT"].split(",") if moment]
        for daemon, call in ((self._worker._loads_from, "load"), (self._worker._saves_to, "save")):
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

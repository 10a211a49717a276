"""Hosts of a fleet, all on this machine: a daemon each, known to routers under a name of its own, and an engine on it."""

import subprocess

from lives import wait_until
from runs import Run
from servers import free_port
from workers import Worker

DISK_BYTES = "256M"
DRAIN_SECONDS = 60


class Host:
    """A daemon with a disk that tells routers what it holds, and one engine at a time. `name`: its id, and its folder's."""

    def __init__(self, name, options, cleanup, report, etcd):
        self.id = name
        self._options, self._cleanup, self._etcd, self._engines = options, cleanup, etcd, 0
        listeners = {
            kind: f"127.0.0.1:{free_port()}" for kind in ("events-listen", "events-replay-listen", "events-snapshot-listen")
        }
        flags = ["--host-id", name, "--etcd-endpoint", etcd.address]
        flags += [word for kind, address in listeners.items() for word in (f"--{kind}", address)]
        # Everything may go to disk: it is thrown away, not worn.
        flags += ["--long-path", options.folder / f"{name}-disk", "--long-bytes", DISK_BYTES, "--second-touch=false"]
        self.run = Run(options, cleanup, report, name=name, flags=flags)
        self.worker = None

    def start_engine(self):
        """Starts an engine; `wait_until_registered` of what comes back tells when it is there."""
        self._engines += 1
        name, options = f"{self.id}-engine-{self._engines}", self._options
        transfer = self.run.transfer()
        self.worker = Worker(
            name, options.folder, options.model, options.daemon.parent, self._etcd, transfer=transfer, host_id=self.id
        )
        self._cleanup.callback(self.worker.kill)
        return self.worker

    @property
    def engine(self):
        """The engine, to be asked without a router."""
        return self.worker.server

    def lose_all(self):
        """Everything goes to disk; then the daemon is killed, another one starts on what is there, and the engine forgets."""
        kvdctl = self._options.daemon.parent / "kvdctl"
        command = [kvdctl, "--socket", self.run.socket, "drain"]
        subprocess.run(command, check=True, timeout=DRAIN_SECONDS, capture_output=True)
        self.run.daemon.kill()
        self.run.start_daemon()
        self.run.wait_for_daemon()
        wait_until(lambda: self.run.stats()["disk_devices_ready"] == 1, "the disk tier is ready")
        self.engine.forget()

"""Engines as workers of a router: etcd, where they register, and servers that a sidecar has started."""

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request

from lives import ANSWER_SECONDS, START_SECONDS, wait_until
from processes import members, shared_files
from servers import Server, free_port


class Etcd:
    """A real one, in a folder of its own."""

    def __init__(self, folder):
        self.address = f"127.0.0.1:{free_port()}"
        own, peer = f"http://{self.address}", f"http://127.0.0.1:{free_port()}"
        words = ["--data-dir", folder / "etcd", "--listen-client-urls", own, "--advertise-client-urls", own]
        words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        with open(folder / "etcd.log", "wb") as log:
            self.process = subprocess.Popen(["etcd", *words, "--unsafe-no-fsync"], stdout=log, stderr=log)
        wait_until(self._answers, "etcd answers")

    def record(self, worker):
        """A worker's record, or nothing."""
        key = base64.b64encode(f"/infera/workers/{worker}".encode()).decode()
        request = urllib.request.Request(f"http://{self.address}/v3/kv/range", json.dumps({"key": key}).encode())
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            found = json.loads(answer.read()).get("kvs", [])
        return json.loads(base64.b64decode(found[0]["value"])) if found else None

    def kill(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()

    def _answers(self):
        with contextlib.suppress(OSError):
            self.record("x")
            return True
        return False


class Worker:
    """A server that was started by a sidecar. Their log is the same.

    `binaries`: the folder of `infera-register`. `host_id`: the daemon that it is to be registered with, `transfer` as a
    `Server`'s.
    """

    def __init__(self, name, folder, model, binaries, etcd, *, transfer=None, host_id=None, words=()):
        events, replay = free_port(), free_port()
        config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{events}", "topic": "kv-events"}
        config["replay_endpoint"] = f"tcp://*:{replay}"
        before = [binaries / "infera-register", "--etcd-endpoint", etcd.address]
        before += ["--drain-timeout-s", str(ANSWER_SECONDS), "--health-interval-s", "1"]
        before += ["--kvd-host-id", host_id] if host_id else []
        words = ["--kv-events-config", json.dumps(config), *words]
        self.etcd, self.events, self.replay = etcd, f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"
        self.server = Server(name, folder, model, transfer, words=words, before=[*before, "--"])
        self.process, self.id, self.name = self.server.process, self.server.address, name

    def wait_until_registered(self):
        """Until routers can know it; itself."""
        wait_until(self._is_registered, f"{self.name} is registered", START_SECONDS)
        return self

    def record(self):
        """Its record, or nothing."""
        return self.etcd.record(self.id)

    def ended(self):
        """Whether the sidecar has ended."""
        return self.process.poll() is not None

    def engine(self):
        """The process that the sidecar has started."""
        return int(re.search(r"the engine starts pid=(\d+)", self.server.log()).group(1))

    def kill_engine(self):
        """Kills the engine with all its processes, and removes what it leaves in /dev/shm. The sidecar is left alone."""
        with contextlib.suppress(AttributeError):
            processes = members(self.engine())
            files = shared_files(processes)
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            wait_until(lambda: not members(self.engine()), f"the processes of {self.name} end")
            for path in files:
                path.unlink(missing_ok=True)

    def kill(self):
        """Kills whatever is left."""
        self.kill_engine()
        self.process.kill()
        self.process.wait()

    def _is_registered(self):
        if self.ended():
            raise RuntimeError(f"{self.name}: the sidecar ended early")
        return self.record() is not None

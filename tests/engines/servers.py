"""vLLM's OpenAI server as its users start it: in several processes, asked over HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys

from endpoints import NAME, Endpoint
from lives import ENGINE_ENVIRONMENT, START_SECONDS, STOP_SECONDS, wait_until
from processes import kill_group, members, shared_files

# In several processes; and whoever asks may empty its prefix cache.
ENVIRONMENT = ENGINE_ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_SERVER_DEV_MODE": "1"}


def free_port():
    """A TCP port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server(Endpoint):
    """One server with all its processes. Its log is `folder/<name>.log`. `words`: more for its command line; `before`: what starts it."""

    def __init__(self, name, folder, model, transfer=None, words=(), before=()):
        super().__init__(f"127.0.0.1:{(port := free_port())}")
        self.log_path = folder / f"{name}.log"
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
        command += ["--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
        command += ["--enforce-eager", "--seed", "0", "--max-model-len", "2048", "--block-size", "32"]
        command += ["--max-num-seqs", "4", "--max-num-batched-tokens", "2048", "--kv-cache-memory-bytes", "64M"]
        command += ["--enable-prefix-caching", "--prefix-caching-hash-algo", "sha256_cbor"]
        command += ["--enable-prompt-tokens-details"]
        command += ["--kv-transfer-config", json.dumps(transfer)] if transfer else []
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*before, *command, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | ENVIRONMENT,
                process_group=0,
            )

    def wait_until_ready(self):
        """Until the server takes requests; itself."""
        wait_until(self._is_ready, f"{self.log_path.name} is ready", START_SECONDS)
        return self

    def end(self):
        """Ends it as an operator would; what it left in /dev/shm."""
        files = shared_files(members(self.process.pid))
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)
        wait_until(lambda: not members(self.process.pid), "the server's processes end", STOP_SECONDS)
        return [path for path in files if path.exists()]

    def kill(self):
        """Kills all its processes; what they left in /dev/shm, which is gone now."""
        return kill_group(self.process) if self.process.poll() is None else []

    def log(self):
        """What it wrote so far."""
        return self.log_path.read_text(errors="replace")

    def _is_ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.log_path.name}: the server ended early")
        return self.answers("/health")

"""vLLM's OpenAI server as its users start it: in several processes, asked over HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

from lives import ANSWER_SECONDS, ENGINE_ENVIRONMENT, START_SECONDS, STOP_SECONDS, wait_until
from processes import kill_group, members, shared_files

NAME = "tiny"
TOKENS = 48
ENVIRONMENT = ENGINE_ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}


def free_port():
    """A TCP port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """One server with all its processes. Its log is `folder/<name>.log`. `words`: more for its command line; `before`: what starts it."""

    def __init__(self, name, folder, model, transfer=None, words=(), before=()):
        self.log_path = folder / f"{name}.log"
        self.address = f"127.0.0.1:{(port := free_port())}"
        self._url = f"http://{self.address}"
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

    def generate(self, prompt, tokens=TOKENS):
        """One request: its answer, with the same parts as a `Life`'s."""
        body = {
            "model": NAME,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 1,
            "return_token_ids": True,
        }
        answer = json.loads(self._read("/v1/completions", json.dumps(body).encode()))
        (choice,) = answer["choices"]
        return {
            "tokens": choice["token_ids"],
            "logprobs": choice["logprobs"]["token_logprobs"],
            "finish": choice["finish_reason"],
            "cached": (answer["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0),
        }

    def metrics(self):
        """The Prometheus samples: name with labels to value."""
        lines = (line for line in self._read("/metrics").decode().splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def metric(self, name):
        """The sum of a metric over its labels."""
        return sum(value for key, value in self.metrics().items() if key.partition("{")[0] == name)

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
        try:
            self._read("/health")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def _read(self, path, body=None):
        request = urllib.request.Request(self._url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return answer.read()

"""One life of an SGLang server: started, asked over HTTP, ended, and cleaned up after."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from lives import ANSWER_SECONDS, START_SECONDS, STOP_SECONDS, wait_until

HERE = pathlib.Path(__file__).resolve().parent
SHARED_MEMORY = pathlib.Path("/dev/shm")
OUTPUT_TOKENS = 24
POLL_SECONDS = 0.2


class Server:
    """A server process and its children. Its log is `folder/<name>.log`. `environment`: more variables for it."""

    def __init__(self, name, folder, model, python_path, *arguments, environment=None):
        self.log_path = folder / f"{name}.log"
        self._shared_before = set(SHARED_MEMORY.iterdir())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = os.environ | (environment or {}) | {
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "KVD_SGLANG_ON_CPU": "1",
            "PYTHONPATH": f"{python_path}:{HERE / 'sglang_cpu'}:{HERE}",
            # SGLang builds a small library with it.
            "PATH": f"{_folder_of_ninja()}:{os.environ['PATH']}",
        }
        command = [
            *(sys.executable, "-m", "sglang.launch_server", "--model-path", model, "--device", "cpu"),
            *("--attention-backend", "torch_native", "--host", "127.0.0.1", "--port", str(self.port), "--disable-cuda-graph"),
            *("--skip-server-warmup", "--max-total-tokens", "4096", "--context-length", "2048", "--random-seed", "0"),
            *arguments,
        ]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def wait_until_ready(self):
        """Until the server takes requests; itself."""
        wait_until(self._is_ready, f"{self.log_path.name}: the server is ready", START_SECONDS)
        return self

    def generate(self, prompt):
        """One request: tokens, log-probabilities, how it ended, and cached tokens by where they were."""
        sampling = {"temperature": 0, "max_new_tokens": OUTPUT_TOKENS, "ignore_eos": True}
        about = self._ask("/generate", {"text": prompt, "sampling_params": sampling, "return_logprob": True})["meta_info"]
        chosen = about["output_token_logprobs"]
        return {
            "tokens": [one[1] for one in chosen],
            "logprobs": [one[0] for one in chosen],
            "finish": about["finish_reason"]["type"],
            "prompt_tokens": about["prompt_tokens"],
            "cached": about["cached_tokens"],
            "details": about.get("cached_tokens_details") or {},
        }

    def forget(self):
        """Empties the engine's own caches, as soon as nothing of the last request is under way."""
        wait_until(self._has_forgotten, f"{self.log_path.name}: the caches are empty")

    def end(self):
        """Ends it as its user would; what it wrote to its log."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)
        self.kill()
        return self.log()

    def kill(self):
        """Ends what is left of it, and clears what it left in shared memory."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for path in set(SHARED_MEMORY.glob("sglang_*")) - self._shared_before:
            path.unlink(missing_ok=True)

    def log(self):
        """What it wrote so far."""
        return self.log_path.read_text(errors="replace")

    def _has_forgotten(self):
        try:
            self._ask("/flush_cache", {})
        except RuntimeError:
            time.sleep(POLL_SECONDS)
            return False
        return True

    def _is_ready(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.log_path.name}: the server ended early")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _ask(self, path, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.code} {error.read()[:300]!r}") from error
        return json.loads(text) if text[:1] == b"{" else text


def _folder_of_ninja():
    # Its package may be in an environment below this one, whose programs are not beside this interpreter.
    beside = pathlib.Path(importlib.util.find_spec("ninja").origin).parents[4] / "bin"
    return beside if (beside / "ninja").exists() else pathlib.Path(shutil.which("ninja") or "/usr/bin/ninja").parent

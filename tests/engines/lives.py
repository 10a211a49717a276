"""Processes of a run: the daemon, and lives of an engine that are talked to over their standard input and output."""

import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

from processes import kill_group

HERE = pathlib.Path(__file__).resolve().parent
# A loaded machine takes this long at worst; an idle one a tenth.
START_SECONDS = 400
ANSWER_SECONDS = 300
STOP_SECONDS = 60
POLL_SECONDS = 0.02

ENGINE_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # Scheduler and worker in one process: a third of the time, and nothing left behind in /dev/shm.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # One thread an engine, wherever there is time for it: bound ones would all be bound to the same core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


def wait_until(condition, what, seconds=ANSWER_SECONDS):
    """Waits for `condition()`, and says what did not happen if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(POLL_SECONDS)


class Daemon:
    """A running infera-kvd on `folder/kvd.sock`. `flags`: more words for its command line."""

    def __init__(self, binary, folder, arena="256M", flags=()):
        self.socket = folder / "kvd.sock"
        self.pid_file = folder / "kvd.pid"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("INFERA_")}
        with open(folder / "kvd.log", "ab") as log:
            self.process = subprocess.Popen(
                [binary, "--socket", self.socket, "--max-bytes", arena, "--no-shared-arena-pin", *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean,
            )
        self.pid_file.write_text(str(self.process.pid))

    def stop(self):
        """Ends it as an operator would; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def wait_for_death(self):
        """Somebody else kills it."""
        return self.process.wait(ANSWER_SECONDS)

    def kill(self):
        """Ends it as the kernel would, whatever state it is in."""
        self.process.kill()
        self.process.wait()


class Life:
    """One engine. Its log is `folder/<name>.log`.

    `settings`: more arguments of vLLM's `LLM`. `wrapper`: words before its command line.
    """

    def __init__(self, name, folder, model, transfer=None, environment=None, settings=None, wrapper=()):
        self.log_path = folder / f"{name}.log"
        arguments = ["--transfer", json.dumps(transfer)] if transfer else []
        arguments += ["--settings", json.dumps(settings)] if settings else []
        self._log = open(self.log_path, "w")  # noqa: SIM115 - closed by `end`
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, HERE / "engine_life.py", model, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | ENGINE_ENVIRONMENT | (environment or {}),
            # With several ranks it has children: `kill` must reach them all.
            process_group=0,
        )
        self._answers = queue.Queue()
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    def wait_until_ready(self):
        """Until the engine takes requests; itself."""
        self._next(START_SECONDS)
        return self

    def generate(self, prompt, tokens=None, **parameters):
        """One request: its answer."""
        (answer,) = self.batch([prompt], tokens, **parameters)
        return answer

    def batch(self, prompts, tokens=None, **parameters):
        """Several requests at once: their answers. `tokens`: how many each shall bring, if not the usual number."""
        return self._ask(do="batch", prompts=prompts, tokens=tokens, parameters=parameters or None)["answers"]

    def forget(self):
        """Empties the engine's own prefix cache."""
        if not self._ask(do="forget")["forgotten"]:
            raise RuntimeError(f"{self.log_path.name}: blocks are still in use")

    def metrics(self):
        """vLLM's own counters of prefix-cache tokens."""
        return self._ask(do="metrics")

    def end(self):
        """Ends it as its user would; what it wrote to its log."""
        self.process.stdin.close()
        code = self.process.wait(STOP_SECONDS)
        self._reader.join()
        self._log.close()
        if code != 0:
            raise RuntimeError(f"{self.log_path.name}: exit code {code}")
        return self.log()

    def log(self):
        """What it wrote so far."""
        return self.log_path.read_text(errors="replace")

    def kill(self):
        """Ends it and its children, whatever state they are in."""
        if self.process.poll() is None:
            kill_group(self.process)

    def _ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._next(ANSWER_SECONDS)

    def _next(self, seconds):
        answer = self._answers.get(timeout=seconds)
        if answer is None:
            raise RuntimeError(f"{self.log_path.name}: the engine ended early")
        return answer

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("LIFE "):
                self._answers.put(json.loads(line[5:]))
            else:
                self._log.write(line)
                self._log.flush()
        self._answers.put(None)

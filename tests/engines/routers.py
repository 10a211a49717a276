"""A router in front of workers, and what it says of its choices."""

import json
import signal
import subprocess

from endpoints import Endpoint, chat_body
from lives import STOP_SECONDS, wait_until
from servers import free_port

PICKS = "infera_router_picks_total"


class Router(Endpoint):
    """One that finds its workers in etcd. Its log is `folder/<name>.log`. `binaries`: the folder of `infera-router`."""

    def __init__(self, name, folder, binaries, etcd, model, policy="kv-aware"):
        super().__init__(f"127.0.0.1:{(port := free_port())}")
        command = [binaries / "infera-router", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--etcd-endpoint", etcd.address, "--router-policy", policy, "--shutdown-delay-s", "0"]
        if policy == "kv-aware":
            command += ["--kv-tokenizer-path", model, "--enable-admin", "true"]
        self.log_path = folder / f"{name}.log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_until_ready(self, workers):
        """Until it takes requests and knows so many workers; itself."""
        knows = lambda: self.answers("/ready") and len(self.workers()) == workers  # noqa: E731 - called here only
        wait_until(knows, f"{self.log_path.name}: ready, with {workers} workers")
        return self

    def workers(self):
        """The ids of the workers that it knows."""
        return [worker["worker_id"] for worker in json.loads(self.read("/v1/workers"))["workers"]]

    def explain(self, messages):
        """Where the next turn would go, and why: the router's answer, with its targets by their ids, the first one first."""
        answer = json.loads(self.read("/v1/admin/explain", chat_body(messages, 1)))
        return answer | {"targets": {target["worker_id"]: target for target in answer["targets"]}}

    def picks(self):
        """How many requests it has sent to each worker."""
        return {key.split('worker_id="')[1].split('"')[0]: n for key, n in self.metrics().items() if key.startswith(PICKS)}

    def picked(self, ask):
        """What `ask()` brings, and the one worker that it was sent to meanwhile."""
        before = self.picks()
        answer = ask()
        (worker,) = [worker for worker, n in self.picks().items() if n > before.get(worker, 0)]
        return answer, worker

    def stop(self):
        """Ends it as an operator would; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def kill(self):
        """Ends it at once."""
        self.process.kill()
        self.process.wait()

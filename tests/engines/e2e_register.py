"""vLLM's OpenAI server as a worker of the router: what is registered of it, and when. Run by scripts/e2e-engines.sh.

    python3 e2e_register.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

Needs etcd; infera-register is beside the daemon's binary, which itself is not started.
"""

import base64
import contextlib
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import urllib.request

import msgspec
import zmq
from lives import ANSWER_SECONDS, START_SECONDS, STOP_SECONDS, wait_until
from processes import members, shared_files
from report import program
from servers import NAME, Server, free_port
from tokenizers import Tokenizer

CANARY = "Hello, world!\n你好，世界！<|im_start|>system\n<|endoftext|><|im_end|>🦄"
PROMPT = "A worker says where its blocks are to be heard of. " * 8
LONG_TOKENS = 1500


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
    """A server that was started by a sidecar. Their log is the same."""

    def __init__(self, name, options, cleanup, etcd):
        events, replay = free_port(), free_port()
        config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{events}", "topic": "kv-events"}
        config["replay_endpoint"] = f"tcp://*:{replay}"
        before = [options.daemon.parent / "infera-register", "--etcd-endpoint", etcd.address]
        before += ["--drain-timeout-s", str(ANSWER_SECONDS), "--health-interval-s", "1", "--"]
        words = ["--kv-events-config", json.dumps(config)]
        self.etcd, self.events, self.replay = etcd, f"tcp://127.0.0.1:{events}", f"tcp://127.0.0.1:{replay}"
        self.server = Server(name, options.folder, options.model, words=words, before=before)
        self.process, self.id = self.server.process, self.server.address
        cleanup.callback(self.kill)
        wait_until(lambda: self.ended() or self.record(), f"{name} is registered", START_SECONDS)

    def record(self):
        """Its record, or nothing."""
        return self.etcd.record(self.id)

    def ended(self):
        """Whether the sidecar has ended."""
        return self.process.poll() is not None

    def engine(self):
        """The process that the sidecar has started."""
        return int(re.search(r"the engine starts pid=(\d+)", self.server.log()).group(1))

    def kill(self):
        """Kills whatever is left."""
        with contextlib.suppress(AttributeError):
            for process in members(self.engine()):
                os.kill(process, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def registered(report, worker, model):
    """What is said of it is true."""
    record = worker.record()
    tokenizer = pathlib.Path(model) / "tokenizer.json"
    canary = Tokenizer.from_file(str(tokenizer)).encode(CANARY, add_special_tokens=False).ids
    digest = hashlib.sha256(tokenizer.read_bytes()).hexdigest()[:16]
    for name, expected in {
        "worker_id": worker.id,
        "url": f"http://{worker.id}",
        "model_name": NAME,
        "engine": "vllm",
        "kv_block_size": 32,
        "kv_events_endpoint": worker.events,
        "kv_replay_endpoint": worker.replay,
        "dp_size": None,
        "max_decodes": 4,
    }.items():
        report.check(f"record: {name}", record[name], expected)
    report.check("record: canary", record["kv"]["tokenizer_canary"], canary)
    report.check("record: digest", record["kv"]["tokenizer_digest"], digest)
    return record


def heard(report, worker, record):
    """Its blocks are heard of where the record says, in the size that it says."""
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.setsockopt(zmq.LINGER, 0)
        subscriber.setsockopt(zmq.SUBSCRIBE, b"kv-events")
        subscriber.connect(record["kv_events_endpoint"])
        sizes, number = set(), 0
        # Whoever connects late misses what was published before.
        while not sizes and number < 20:
            worker.server.generate(f"{number} {PROMPT}", 4)
            number += 1
            while subscriber.poll(500):
                _topic, _sequence, payload = subscriber.recv_multipart()
                for event in msgspec.msgpack.decode(payload)[1]:
                    if event["type"] == "BlockStored":
                        sizes.add(event["block_size"])
        report.check("events: block size", sizes, {record["kv_block_size"]})


def drained(report, worker):
    """It is taken out first, then answers what it has begun, then ends."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(worker.server.generate("long", LONG_TOKENS)), daemon=True)
    thread.start()
    wait_until(lambda: worker.server.metric("vllm:num_requests_running") > 0, "the long request runs")
    worker.process.send_signal(signal.SIGTERM)
    wait_until(lambda: worker.record() is None, "it is taken out")
    report.check("drain: not answered yet when it is taken out", (len(answers), worker.ended()), (0, False))
    thread.join(ANSWER_SECONDS)
    report.check("drain: the answer is whole", [len(answer["tokens"]) for answer in answers], [LONG_TOKENS])
    report.check("drain: exit code", worker.process.wait(STOP_SECONDS), 0)
    report.check("drain: nobody is left", members(worker.engine()), [])


def killed(report, worker):
    """An engine that dies is taken out at once, and all of it is gone."""
    files = shared_files(members(worker.engine()))
    os.kill(worker.engine(), signal.SIGKILL)
    report.check("killed: exit code", worker.process.wait(STOP_SECONDS), 128 + signal.SIGKILL)
    report.check("killed: taken out", worker.record(), None)
    report.check("killed: nobody is left", members(worker.engine()), [])
    for path in files:
        path.unlink(missing_ok=True)


def everything(options, cleanup, report):
    """In order."""
    etcd = Etcd(options.folder)
    cleanup.callback(etcd.kill)
    worker = Worker("drained", options, cleanup, etcd)
    heard(report, worker, registered(report, worker, options.model))
    drained(report, worker)
    worker = Worker("killed", options, cleanup, etcd)
    report.check("killed: registered before", worker.record() is not None)
    killed(report, worker)


if __name__ == "__main__":
    program(__doc__, everything)

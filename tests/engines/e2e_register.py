"""vLLM's OpenAI server as a worker of the router: what is registered of it, and when. Run by scripts/e2e-engines.sh.

    python3 e2e_register.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

Needs etcd; infera-register is beside the daemon's binary, which itself is not started.
"""

import hashlib
import os
import pathlib
import signal
import threading

import msgspec
import zmq
from endpoints import NAME
from lives import ANSWER_SECONDS, STOP_SECONDS, wait_until
from processes import members, shared_files
from report import program
from tokenizers import Tokenizer
from workers import Etcd, Worker

CANARY = "Hello, world!\n你好，世界！<|im_start|>system\n<|endoftext|><|im_end|>🦄"
PROMPT = "A worker says where its blocks are to be heard of. " * 8
LONG_TOKENS = 1500


def start(name, options, cleanup, etcd):
    """A worker, once it is registered."""
    worker = Worker(name, options.folder, options.model, options.daemon.parent, etcd)
    cleanup.callback(worker.kill)
    return worker.wait_until_registered()


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
        "model_root": str(model),
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
    worker = start("drained", options, cleanup, etcd)
    heard(report, worker, registered(report, worker, options.model))
    drained(report, worker)
    worker = start("killed", options, cleanup, etcd)
    report.check("killed: registered before", worker.record() is not None)
    killed(report, worker)


if __name__ == "__main__":
    program(__doc__, everything)

"""An engine's HTTP without an engine: health, models, metrics, what SGLang or vLLM tell of themselves. Run by tests/tests/register.rs.

    python3 mock_engine.py --port PORT [--like vllm|sglang] [--health STATUS] [--ignore-term] [--with-child] [flags of a real engine]...

POST /control {"health": 503, "running": 1, "model": "m", "block_size": 32, "exit": 7} changes what it does, each key if given. It
prints the signals that it gets. SIGTERM ends it with exit code 5 unless it was started with --ignore-term.
"""

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def argument(name, default=None):
    """The word after `name`."""
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


PORT = int(argument("--port"))
LIKE = argument("--like", "vllm")
EVENTS = json.loads(argument("--kv-events-config", "null"))
STATE = {"health": int(argument("--health", "200")), "running": 0, "model": "m", "block_size": 16}
METRICS = """# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
vllm:cache_config_info{{block_size="{block_size}",engine="0"}} 1.0
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} 0.0
"""


def server_info():
    """What SGLang tells."""
    return {
        "page_size": STATE["block_size"],
        "dp_size": 2,
        "max_running_requests": 48,
        "tokenizer_path": "/models/tokenizer",
        "kv_events": {
            "publisher": "zmq",
            "endpoint_host": "*",
            "endpoint_port_base": 5557,
            "topic": "kv-events",
            "block_size": STATE["block_size"],
            "dp_size": 2,
        },
    }


def answer(method, path, body):
    """Status and body."""
    is_vllm = LIKE == "vllm"
    match method, path:
        case "GET", "/health":
            return STATE["health"], b""
        case "GET", "/v1/models":
            return 200, {"object": "list", "data": [{"id": STATE["model"], "root": "/models/m", "parent": None}]}
        case "GET", "/metrics" if is_vllm:
            return 200, METRICS.format(**STATE).encode()
        case "GET", "/kv_event_sources" if is_vllm:
            return 200, {"0": EVENTS} if EVENTS else {}
        case "GET", "/server_info" if not is_vllm:
            return 200, server_info()
        case "GET", "/v1/loads" if not is_vllm:
            return 200, {"loads": [{"num_running_reqs": STATE["running"], "num_waiting_reqs": 0}]}
        case "POST", "/tokenize":
            request = json.loads(body)
            assert request["add_special_tokens"] is False
            return 200, {"tokens": list(request["prompt"].encode())}
        case "POST", "/v1/chat/completions":
            return 200, {"model": json.loads(body)["model"], "choices": []}
        case "POST", "/control":
            STATE.update(json.loads(body))
            if "exit" in STATE:
                os._exit(STATE["exit"])
            return 200, {}
    return 404, {"detail": "Not Found"}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    def do_GET(self):
        """Answers."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        status, body = answer(self.command, self.path.partition("?")[0], body)
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *words):
        """Nothing is logged."""


def heard(number, _frame):
    """Prints a signal, and acts on it."""
    print(f"heard {signal.Signals(number).name} with {STATE['running']} running", flush=True)
    if number == signal.SIGTERM and "--ignore-term" not in sys.argv:
        os._exit(5)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, heard)
    if "--with-child" in sys.argv:
        print(f"child {subprocess.Popen(['sleep', '1000']).pid}", flush=True)
    ThreadingHTTPServer.daemon_threads = True
    server = ThreadingHTTPServer((argument("--host", "127.0.0.1"), PORT), Handler)
    print("mock engine serves", flush=True)
    server.serve_forever()

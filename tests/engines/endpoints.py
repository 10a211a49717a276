"""An OpenAI endpoint, an engine's own or a router's, asked over HTTP."""

import json
import time
import urllib.error
import urllib.request

from lives import ANSWER_SECONDS, wait_until

NAME = "tiny"
TOKENS = 48


class Endpoint:
    """Where requests go. `address`: host and port."""

    def __init__(self, address):
        self.address = address
        self._url = f"http://{address}"

    def generate(self, prompt, tokens=TOKENS):
        """One completion, with the same parts as a `Life`'s."""
        body = {
            "model": NAME,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": 1,
            "return_token_ids": True,
        }
        answer = json.loads(self.read("/v1/completions", json.dumps(body).encode()))
        (choice,) = answer["choices"]
        return {
            "tokens": choice["token_ids"],
            "logprobs": choice["logprobs"]["token_logprobs"],
            "finish": choice["finish_reason"],
            "cached": _cached(answer["usage"]),
        }

    def chat(self, messages, tokens):
        """One turn: tokens, text, and how many tokens of the prompt were cached."""
        answer = json.loads(self.read("/v1/chat/completions", chat_body(messages, tokens)))
        (choice,) = answer["choices"]
        return {
            "tokens": choice["token_ids"],
            "text": choice["message"]["content"],
            "prompt_tokens": answer["usage"]["prompt_tokens"],
            "cached": _cached(answer["usage"]),
        }

    def stream(self, messages, tokens):
        """The same as it is written, and the seconds to its first token."""
        extra = {"stream": True, "stream_options": {"include_usage": True}}
        begun, first, ended = time.monotonic(), None, False
        turn = {"tokens": [], "text": "", "prompt_tokens": None, "cached": None}
        with self._open("/v1/chat/completions", chat_body(messages, tokens, **extra)) as lines:
            for line in lines:
                content = line.removeprefix(b"data: ").strip()
                if content == b"[DONE]":
                    ended = True
                elif content and _take(turn, json.loads(content)) and first is None:
                    first = time.monotonic() - begun
        if not ended:
            raise ConnectionError(f"{self.address}: a stream without an end")
        return turn | {"first_seconds": first}

    def metrics(self):
        """The Prometheus samples: name with labels to value."""
        lines = (line for line in self.read("/metrics").decode().splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def metric(self, name):
        """The sum of a metric over its labels."""
        return sum(value for key, value in self.metrics().items() if key.partition("{")[0] == name)

    def answers(self, path):
        """Whether it answers there, with 200."""
        try:
            self.read(path)
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def forget(self):
        """Empties an engine's own prefix cache, and has it say so: what happens to blocks is told at the end of a step only."""
        wait_until(self._forgets, f"{self.address} forgets")
        self._step()

    def _forgets(self):
        if json.loads(self.read("/reset_prefix_cache", b""))["success"]:
            return True
        # Blocks that are being saved are let go of in a later step.
        self._step()
        return False

    def _step(self):
        self.generate("x", 1)

    def read(self, path, body=None):
        """The answer's body; raises `urllib.error.HTTPError` if its status is none of success."""
        with self._open(path, body) as answer:
            return answer.read()

    def _open(self, path, body):
        request = urllib.request.Request(self._url + path, body, {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=ANSWER_SECONDS)


def chat_body(messages, tokens, **extra):
    """The request for one turn, as bytes."""
    body = {
        "model": NAME,
        "messages": messages,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    return json.dumps(body | extra).encode()


def _take(turn, chunk):
    """Adds a piece of a stream to a turn; whether a token was in it."""
    if chunk.get("usage"):
        turn["prompt_tokens"], turn["cached"] = chunk["usage"]["prompt_tokens"], _cached(chunk["usage"])
    tokens = []
    for choice in chunk["choices"]:
        tokens += choice.get("token_ids") or []
        turn["text"] += choice["delta"].get("content") or ""
    turn["tokens"] += tokens
    return bool(tokens)


def _cached(usage):
    return (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0

"""Chats about texts that nothing else is about, and how they are had through a router."""

import dataclasses
import random
import string
import time

TURN_TOKENS = 12
# A document and some turns are within the engines' 2048 tokens, a token a byte.
DOCUMENT_WORDS, WORD_LETTERS = 170, 6
# Events are under way for some milliseconds; people take longer to read an answer.
READING_SECONDS = 0.5


class Conversation:
    """One chat. `name`: decides what it is about."""

    def __init__(self, name):
        drawn = random.Random(name)
        words = ("".join(drawn.choices(string.ascii_lowercase, k=WORD_LETTERS)) for _ in range(DOCUMENT_WORDS))
        self.name, self.messages = name, [{"role": "user", "content": f"{name}: {' '.join(words)}"}]

    def turn(self, ask):
        """Asks by a method of an `Endpoint`, and goes on: the answer."""
        answer = ask(self.messages, TURN_TOKENS)
        question = {"role": "user", "content": "and what else?"}
        self.messages += [{"role": "assistant", "content": answer["text"]}, question]
        return answer


@dataclasses.dataclass(frozen=True)
class Turn:
    """What became of a turn: who answered, tokens of the prompt and how many of them were cached, seconds to the first one."""

    conversation: int
    number: int
    worker: str
    prompt_tokens: int
    cached: int
    first_seconds: float


def have(router, name, count, turns):
    """Several conversations, one request after the other, in each round in another order: their turns."""
    conversations = {number: Conversation(f"{name} {number}") for number in range(count)}
    order, had = random.Random(1), []
    for turn in range(turns):
        for number in order.sample(range(count), count):
            answer, worker = router.picked(lambda talk=conversations[number]: talk.turn(router.stream))
            had.append(Turn(number, turn, worker, answer["prompt_tokens"], answer["cached"], answer["first_seconds"]))
        time.sleep(READING_SECONDS)
    return had


def cached_share(turns):
    """Which part of the prompts was cached."""
    return sum(turn.cached for turn in turns) / sum(turn.prompt_tokens for turn in turns)


def mean_milliseconds(turns):
    """Mean time to the first token."""
    return 1000 * sum(turn.first_seconds for turn in turns) / len(turns)


def explanation(answer, host_of):
    """Why the router would send a request where: lines for people. `answer`: of `Router.explain`. `host_of`: by worker."""
    lines = [f"{'':10}{'device':>8}{'memory':>8}{'disk':>8}{'missing':>9}   {'wait':>7}{'load':>8}{'compute':>9}{'first token':>13}"]
    for number, (worker, target) in enumerate(answer["targets"].items()):
        terms = target["terms"]
        tokens = "".join(f"{terms[f'{tier}_tokens']:8.0f}" for tier in ("device", "l2", "l3"))
        wait, load, compute, first = (terms[f"{part}_seconds"] * 1000 for part in ("queue", "load", "prefill", "ettft"))
        mark = "  <- goes here" if number == 0 else ""
        times = f"{wait:7.1f}{load:8.1f}{compute:9.1f}{first:10.1f} ms{mark}"
        lines.append(f"{host_of[worker]:10}{tokens}{terms['uncached_tokens']:9.0f}   {times}")
    return "\n".join(lines)

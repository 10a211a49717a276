"""An arena of a few blocks, and an engine whose own cache is hardly larger: everything is evicted all the time.

Two hundred requests with common beginnings, one by one and in batches. What is lost between look-up and load is
computed; every answer is the one of an engine without a connector.
"""

import random

from runs import Run

SEED = 7
SINGLE, BATCHES, BATCH = 100, 25, 4
TOKENS = 4
# Sixteen blocks of 64 KiB, less what the daemon needs itself.
ARENA = "1M"
# The engine's own: room for one long request and little else, so that it has to ask.
SETTINGS = {"max_model_len": 256, "kv_cache_memory_bytes": 10 * 65536}
DOCUMENTS = [f"Document {number}: " + sentence * 4 for number, sentence in enumerate((
    "a small arena forgets nearly everything at once. ",
    "what is found must be right, what is lost is computed. ",
    "some beginnings come again and again, at once. ",
    "nobody is told more than what was stored. ",
    "an engine alone would have computed the same. ",
))]


def prompts():
    """The requests: (those that come alone, those that come together)."""
    draw = random.Random(SEED)

    def prompt(number):
        document = draw.choice(DOCUMENTS)
        return document[: draw.randrange(20, len(document))] + f" Question {number % 17}?"

    alone = [prompt(number) for number in range(SINGLE)]
    together = [[prompt(number * BATCH + i) for i in range(BATCH)] for number in range(BATCHES)]
    return alone, together


def replay(life):
    """The answers of an engine: (log-probabilities and tokens of those alone, tokens of those together)."""
    alone, together = prompts()
    one_by_one = [life.generate(prompt, TOKENS) for prompt in alone]
    batched = [answer for batch in together for answer in life.batch(batch, TOKENS)]
    return (
        [(answer["tokens"], answer["logprobs"], answer["finish"]) for answer in one_by_one],
        [(answer["tokens"], answer["finish"]) for answer in batched],
    )


def everything(options, cleanup, report, expected):
    """One engine on one small arena. `expected`: what `replay` gave for an engine without a connector."""
    run = Run(options, cleanup, report, name="small-arena", arena=ARENA)
    life = run.life("small-arena", settings=SETTINGS).wait_until_ready()
    alone, together = replay(life)
    report.check(f"small arena: {len(alone)} requests alone, tokens and logprobs", _different(alone, expected[0]), [])
    report.check(f"small arena: {len(together)} requests together, tokens", _different(together, expected[1]), [])
    stats = run.stats()
    report.check("small arena: blocks were evicted", stats["evictions_total"] > 0)
    report.check("small arena: and some were found", stats["hits_total"] > 0)
    life.end()
    report.check("small arena: the daemon ends cleanly", run.daemon.stop(), 0)


def _different(found, expected):
    return [number for number, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]]

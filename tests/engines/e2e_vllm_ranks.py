"""Several ranks: tensor and pipeline parallelism, and ranks that lose different blocks. Run by scripts/e2e-engines.sh.

    python3 e2e_vllm_ranks.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

The baseline of each is an engine without a connector and with as many ranks. Takes two cores and some minutes.
"""

import pathlib
import random
import re

from blocks import BLOCK_TOKENS, loadable
from lives import wait_until
from report import program
from runs import NAMESPACE, Run

TENSOR = {"tensor_parallel_size": 2}
# vLLM's ranks learn the shape of what they hand on from a warm-up, which a CPU has only if the model is traced.
PIPELINE = {
    "pipeline_parallel_size": 2,
    "enforce_eager": False,
    "compilation_config": {"mode": 2, "backend": "eager"},
}
DOCUMENT = "Two ranks hold half of each block, and both halves must be there. " * 10
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: a different question?", "something else " * 20]
FAILED = re.compile(r"load_failed_blocks (\d+)")

ROUNDS, BATCH, TOKENS = 1000, 4, 3
SHORT = [f"Prompt {number}, with three full blocks and then a little more. ".ljust(110, ".") for number in range(12)]


def base(run, name, settings):
    """What the engine says without us, with as many ranks."""
    life = run.life(f"{name}-base", transfer=None, settings=settings).wait_until_ready()
    for prompt in PROMPTS:
        run.baseline[prompt] = life.generate(prompt)
    short = {prompt: life.generate(prompt, TOKENS)["tokens"] for prompt in SHORT}
    life.end()
    return short


def cold_and_warm(run, name, settings):
    """Each rank stores its own half of each block, and finds it again after the engine's restart."""
    life = run.life(f"{name}-cold", settings=settings).wait_until_ready()
    for number, prompt in enumerate(PROMPTS):
        run.same(f"{name}, cold {number}", life.generate(prompt), prompt)
    shards = {found.groups() for found in NAMESPACE.finditer(life.log())}
    run.report.check(f"{name}: a namespace for each rank", len(shards), 2)
    keys = sorted(run.stored_keys(PROMPTS))
    for model, compat_key, _ in shards:
        wait_until(lambda at=(model, compat_key): all(row.present for row in run.client.locate(*at, keys, prefix=False)),
                   f"{name}: every rank stores")
    life.end()
    before = run.stats()
    life = run.life(f"{name}-warm", settings=settings).wait_until_ready()
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"{name}, warm {number}", answer, prompt)
        run.report.check(f"{name}, warm {number}: cached tokens", answer["cached"], loadable(prompt))
    tokens = life.metrics()["vllm:external_prefix_cache_hits"]
    after = run.stats()
    run.report.check(f"{name}: each rank's hits", after["hits_total"] - before["hits_total"], 2 * tokens // BLOCK_TOKENS)
    run.report.check(f"{name}: nothing is stored twice", after["sets_total"], before["sets_total"])
    life.end()


def losing(run, name, settings, expected):
    """A thousand requests whose ranks lose different blocks between look-up and load: all compute, none waits."""
    environment = {"KVD_LOSING_SEED": "11"}
    environment["PYTHONPATH"] = f"{run.options.python_path}:{pathlib.Path(__file__).resolve().parent}"
    transfer = run.transfer(connector="LosingConnector", module="losing")
    life = run.life(f"{name}-losing", transfer=transfer, settings=settings, environment=environment).wait_until_ready()
    for prompt in SHORT:
        run.report.check(f"{name}, losing: before the first loss", life.generate(prompt, TOKENS)["tokens"], expected[prompt])
    draw = random.Random(3)
    wrong, before = [], run.stats()
    for number in range(ROUNDS // BATCH):
        life.forget()
        prompts = draw.sample(SHORT, BATCH)
        for prompt, answer in zip(prompts, life.batch(prompts, TOKENS), strict=True):
            if (answer["tokens"], answer["finish"]) != (expected[prompt], "length"):
                wrong.append((number, prompt, answer))
    run.report.check(f"{name}: {ROUNDS} requests with losses, wrong answers", wrong, [])
    after = run.stats()
    misses = after["misses_total"] - before["misses_total"]
    run.report.check(f"{name}: blocks were lost ({misses}) in nearly every round", misses > ROUNDS)
    run.report.check(f"{name}: and others were found", after["hits_total"] - before["hits_total"] > ROUNDS)
    log = life.end()
    failed = [int(count) for count in FAILED.findall(log)]
    run.report.check(f"{name}: both ranks lost some, as the daemon says", (len(failed), sum(failed)), (2, misses))


def everything(options, cleanup, report):
    """One daemon for each way of having ranks."""
    for name, settings in (("tensor", TENSOR), ("pipeline", PIPELINE)):
        run = Run(options, cleanup, report, name=name)
        expected = base(run, name, settings)
        cold_and_warm(run, name, settings)
        losing(run, name, settings, expected)
        report.check(f"{name}: the daemon ends cleanly", run.daemon.stop(), 0)


if __name__ == "__main__":
    program(__doc__, everything)

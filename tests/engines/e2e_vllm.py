"""Real engines on a real daemon: what is found again, by whom, and that nothing else changes. Run by scripts/e2e-vllm.sh.

    python3 e2e_vllm.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

What an engine should answer is never written down: a life without a connector on the same host says it, and every
token and log-probability of every other life must be the same. Last line: `N passed, N failed`.
"""

import pathlib
import re

import vllm_disk
import vllm_small_arena
from blocks import BLOCK_TOKENS, block_keys, loadable, prompt_keys, tokens_of
from report import program
from runs import Run

BLOCK_BYTES = 65536

DOCUMENT = "The quick brown fox jumps over the lazy dog. " * 16
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: a different question?", "unrelated prompt " * 20]
SHARED = "two engines, one daemon, one copy. " * 12
DURING_SAVE = "the daemon goes while this is stored. " * 12
AFTERWARDS = "and this is stored by the next daemon. " * 12


def base(run):
    """What the engine says without us."""
    life = run.life("base", transfer=None).wait_until_ready()
    for prompt in (*PROMPTS, SHARED, DURING_SAVE, AFTERWARDS):
        run.baseline[prompt] = life.generate(prompt)
    expected = vllm_small_arena.replay(life)
    run.report.check("base: the whole answer", {a["finish"] for a in run.baseline.values()}, {"length"})
    run.report.check("base: prompts as counted here", run.baseline[SHARED]["prompt_tokens"], len(tokens_of(SHARED)))
    life.end()
    return expected


def cold(run):
    """An empty daemon: nothing is found, everything is stored."""
    life = run.life("cold").wait_until_ready()
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"cold {number}", answer, prompt)
        run.report.check(f"cold {number}: cached tokens as without us", answer["cached"], run.baseline[prompt]["cached"])
    run.report.check("cold: nothing from outside", life.metrics()["vllm:external_prefix_cache_hits"], 0)
    log = life.end()
    run.report.check("cold: bytes a block", run.remember_namespace(log), BLOCK_BYTES)
    keys, stats = run.stored_keys(PROMPTS), run.stats()
    run.report.check("cold: kvd has every block, under the keys computed here", stats["entries"], len(keys))
    run.report.check("cold: kvd took each once", stats["sets_total"], len(keys))
    run.report.check("cold: kvd's bytes", stats["host_bytes"], len(keys) * BLOCK_BYTES)
    run.report.check("cold: kvd was asked for nothing", stats["gets_total"], 0)
    found = run.client.locate(*run.namespace, sorted(keys), prefix=False)
    run.report.check("cold: the keys themselves", all(row.present for row in found))


def warm(run):
    """A new engine process on the same daemon."""
    before = run.stats()
    life = run.life("warm").wait_until_ready()
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"warm {number}", answer, prompt)
        run.report.check(f"warm {number}: cached tokens", answer["cached"], loadable(prompt))
    blocks = prompt_keys(PROMPTS)
    hits = life.metrics()["vllm:external_prefix_cache_hits"]
    run.report.check("warm: tokens from outside", hits, len(blocks) * BLOCK_TOKENS)
    after = run.stats()
    run.report.check("warm: kvd's hits", after["hits_total"] - before["hits_total"], len(blocks))
    run.report.check("warm: kvd's misses", after["misses_total"] - before["misses_total"], 0)
    run.report.check("warm: nothing is stored twice", after["sets_total"], before["sets_total"])
    return life


def sharing(run, first):
    """Two engines at once: the second finds what the first has stored, and there is one copy."""
    second = run.life("second").wait_until_ready()
    run.same("first of two", first.generate(SHARED), SHARED)
    run.wait_for_keys([SHARED], "the first engine stores")
    before = run.stats()
    answer = second.generate(SHARED)
    run.same("second of two", answer, SHARED)
    run.report.check("second of two: cached tokens", answer["cached"], loadable(SHARED))
    after = run.stats()
    # Three connections of the first, two of the second so far, and this process.
    run.report.check("two engines are attached", after["sessions"] >= 6)
    found = after["hits_total"] - before["hits_total"]
    run.report.check("second of two: kvd's hits", found, loadable(SHARED) // BLOCK_TOKENS)
    run.report.check("two engines, one copy", (after["entries"], after["host_bytes"]), (before["entries"], before["host_bytes"]))
    return second


def wrong_block(run, life):
    """Negative control: the output does depend on the bytes that are loaded."""
    key, other = (block_keys(tokens_of(PROMPTS[0]))[number] for number in (7, 8))
    value = run.client.get(*run.namespace, other)
    original = run.client.get(*run.namespace, key)
    run.report.check("control: two blocks of the engine's", (len(value), value == original), (BLOCK_BYTES, False))
    run.report.check("control: the wrong one is stored", run.client.put(*run.namespace, key, value), None)
    answer = life.generate(PROMPTS[0])
    run.report.check("control: it was loaded", answer["cached"], loadable(PROMPTS[0]))
    run.report.check("control: one wrong block changes the output", answer["logprobs"] != run.baseline[PROMPTS[0]]["logprobs"])
    run.client.put(*run.namespace, key, original)


def killed(run, others):
    """The daemon is killed between look-up and load, and again with a save on its way. Nobody's answer changes."""
    environment = {**run.traps(), "PYTHONPATH": f"{run.options.python_path}:{pathlib.Path(__file__).resolve().parent}"}
    meddling = run.transfer(connector="MeddlingConnector", module="meddling")
    life = run.life("killed", transfer=meddling, environment=environment)
    life.wait_until_ready()
    run.kill_daemon_at("load", lambda: run.same("killed at the load", life.generate(PROMPTS[0]), PROMPTS[0]))
    run.same("without a daemon", life.generate(PROMPTS[1]), PROMPTS[1])
    for number, other in enumerate(others):
        run.same(f"without a daemon, engine {number}", other.generate(PROMPTS[2]), PROMPTS[2])

    run.start_daemon()
    run.wait_for_daemon()
    run.kill_daemon_at("save", lambda: run.same("killed at the save", life.generate(DURING_SAVE), DURING_SAVE))

    run.start_daemon()
    run.wait_for_daemon()
    run.same("after the restart", life.generate(AFTERWARDS), AFTERWARDS)
    run.wait_for_keys([AFTERWARDS], "the engine stores again")
    answer = others[0].generate(AFTERWARDS)
    run.same("after the restart, another engine", answer, AFTERWARDS)
    run.report.check("after the restart: found again", answer["cached"], loadable(AFTERWARDS))
    log = life.end()
    run.report.check("both kills took place", re.findall(r"MEDDLING killed \d+ at (\w+)", log), ["load", "save"])
    run.report.check("the loss is one line for each connection at most", 1 <= log.count("does not answer") <= 6)
    run.report.check("a failed load is no error for the engine", "Recovered from KV load failure" in log)


def everything(options, cleanup, report):
    """The lives in order; each goes on where the one before has left the daemon."""
    run = Run(options, cleanup, report)
    expected = base(run)
    cold(run)
    first = warm(run)
    second = sharing(run, first)
    wrong_block(run, second)
    killed(run, [first, second])
    for life in (first, second):
        log = life.end()
        report.check(f"{life.log_path.stem}: no error in the log", re.findall(r"^.*(?:ERROR|Traceback).*$", log, re.M), [])
    report.check("the last daemon ends cleanly", run.daemon.stop(), 0)
    vllm_disk.everything(options, cleanup, report, run.baseline, PROMPTS)
    vllm_small_arena.everything(options, cleanup, report, expected)


if __name__ == "__main__":
    program(__doc__, everything)

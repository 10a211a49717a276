"""vLLM's own offloading with infera-kvd as its second tier: real engines, a real daemon. Run by scripts/e2e-engines.sh.

    python3 e2e_tier.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

On a CPU, where vLLM's offloading does not run by itself: `tier_spec.py` copies in a GPU's place. Every token and
log-probability must be that of a life without a connector. Last line: `N passed, N failed`.
"""

import pathlib
import re
import signal
import time

from blocks import BLOCK_TOKENS, block_keys, loadable, prompt_keys, tokens_of
from lives import wait_until
from processes import members, shared_files
from report import program
from runs import Run

HERE = pathlib.Path(__file__).resolve().parent
BLOCK_BYTES = 65536
TIER = {"type": "InferaKvdTier", "module_path": "infera_kvd.vllm.tier"}
MEDDLING = {"type": "MeddlingTier", "module_path": "meddling"}
# Of the primary tier: 512 rows of one block.
PRIMARY_BYTES = 512 * BLOCK_BYTES
NAMESPACE = re.compile(r"infera-kvd tier: model (\S+), compat_key (\S+), (\d+) bytes a row")
# For a machine that has much else to do: a daemon that is only slow is not to be taken for one that is away.
DEADLINE_SECONDS = 5
# Some deadlines, and the computing itself.
HANG_SECONDS_MAX = 60
HITS = "vllm:external_prefix_cache_hits"

DOCUMENT = "The quick brown fox jumps over the lazy dog. " * 16
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: a different question?", "unrelated prompt " * 20]
DURING_SAVE = "the daemon goes while this is stored. " * 12
AFTERWARDS = "and this is stored by the next daemon. " * 12
REFUSED = "nothing of this request is to be stored. " * 12


def tier_life(run, name, *, tier=TIER, environment=None, settings=None, options=None, **extra):
    """An engine with the tier. `options` go to the tier, `extra` to vLLM's offloading."""
    engine_id = f"infera-kvd-{run.folder.stat().st_ino}-{name}"
    transfer = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "engine_id": engine_id,
        "kv_connector_extra_config": {
            "spec_name": "TieringOnCpu",
            "spec_module_path": "tier_spec",
            "cpu_bytes_to_use": PRIMARY_BYTES,
            "secondary_tiers": [{**tier, "socket": run.socket, "deadline_seconds": DEADLINE_SECONDS, **(options or {})}],
            **extra,
        },
    }
    # What an engine that is killed leaves behind.
    run.cleanup.callback(lambda: [path.unlink() for path in leftovers(engine_id)])
    environment = {"PYTHONPATH": f"{run.options.python_path}:{HERE}", **(environment or {})}
    return run.life(name, transfer=transfer, environment=environment, settings=settings).wait_until_ready()


def leftovers(engine_id):
    """The engine's files in memory."""
    return list(pathlib.Path("/dev/shm").glob(f"vllm_offload_{engine_id}*"))


def stored_keys(prompts, blocks_per_chunk=1):
    """The keys of every row that these prompts make: what is generated is not offloaded."""
    last_block = slice(blocks_per_chunk - 1, None, blocks_per_chunk)
    return {key for prompt in prompts for key in block_keys(tokens_of(prompt))[last_block]}


def wait_for_rows(run, keys, what):
    """Storing is done in the background."""
    wait_until(lambda: all(row.present for row in run.client.locate(*run.namespace, sorted(keys), prefix=False)), what)


def base(run):
    """What the engine says without us."""
    life = run.life("base", transfer=None).wait_until_ready()
    for prompt in (*PROMPTS, DURING_SAVE, AFTERWARDS, REFUSED):
        run.baseline[prompt] = life.generate(prompt)
    life.end()


def cold(run):
    """An empty daemon: nothing is found, every chunk of the prompts is stored, by its engine's name."""
    life = tier_life(run, "cold")
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"cold {number}", answer, prompt)
        run.report.check(f"cold {number}: cached tokens as without us", answer["cached"], run.baseline[prompt]["cached"])
    run.report.check("cold: nothing from outside", life.metrics()[HITS], 0)
    run.same("cold, not to be stored", life.generate(REFUSED, infera_retention="for ever"), REFUSED)
    model, compat_key, row_bytes = NAMESPACE.search(life.log()).groups()
    run.namespace = (model, compat_key)
    wait_for_rows(run, stored_keys(PROMPTS), "everything is stored")
    log = life.end()
    keys, stats = stored_keys(PROMPTS), run.stats()
    run.report.check("cold: bytes a row", int(row_bytes), BLOCK_BYTES)
    run.report.check("cold: kvd has every row, under the keys computed here, and no other", stats["entries"], len(keys))
    run.report.check("cold: kvd took each once", stats["sets_total"], len(keys))
    run.report.check("cold: kvd's bytes", stats["host_bytes"], len(keys) * BLOCK_BYTES)
    run.report.check("cold: kvd was asked for nothing", stats["gets_total"], 0)
    run.report.check("cold: the mistake of a request is one line", log.count("is stored: infera_retention"), 1)
    return log


def warm(run):
    """A new engine on the same daemon: everything that can come from outside does."""
    before = run.stats()
    life = tier_life(run, "warm")
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"warm {number}", answer, prompt)
        run.report.check(f"warm {number}: cached tokens", answer["cached"], loadable(prompt))
    keys = prompt_keys(PROMPTS)
    run.report.check("warm: tokens from outside", life.metrics()[HITS], len(keys) * BLOCK_TOKENS)
    log = life.end()
    after = run.stats()
    run.report.check("warm: kvd's hits", after["hits_total"] - before["hits_total"], len(keys))
    run.report.check("warm: kvd's misses", after["misses_total"] - before["misses_total"], 0)
    run.report.check("warm: nothing is stored twice", after["sets_total"], before["sets_total"])
    return log


def wrong_row(run):
    """Negative control: the output does depend on the bytes that are loaded."""
    key, other = (block_keys(tokens_of(PROMPTS[0]))[number] for number in (7, 8))
    value, original = (run.client.get(*run.namespace, each) for each in (other, key))
    run.report.check("control: two rows of the engine's", (len(value), value == original), (BLOCK_BYTES, False))
    run.report.check("control: the wrong one is stored", run.client.put(*run.namespace, key, value), None)
    life = tier_life(run, "control")
    answer = life.generate(PROMPTS[0])
    run.report.check("control: it was loaded", answer["cached"], loadable(PROMPTS[0]))
    run.report.check("control: one wrong row changes the output", answer["logprobs"] != run.baseline[PROMPTS[0]]["logprobs"])
    run.client.put(*run.namespace, key, original)
    # As the kernel would end it: what stays behind in memory is cleaned up by this program.
    life.kill()


def killed(run):
    """The daemon is killed with rows on their way in, and again with rows on their way out. Nobody's answer changes."""
    life = tier_life(run, "killed", tier=MEDDLING, environment=run.traps())
    run.kill_daemon_at("load", lambda: run.same("killed at the load", life.generate(PROMPTS[0]), PROMPTS[0]))
    run.same("without a daemon", life.generate(PROMPTS[2]), PROMPTS[2])
    run.report.check("the lost tokens are not called found", life.metrics()[HITS], 0)

    run.start_daemon()
    run.wait_for_daemon()
    run.kill_daemon_at("save", lambda: run.same("killed at the save", life.generate(DURING_SAVE), DURING_SAVE))

    run.start_daemon()
    run.wait_for_daemon()
    run.same("after the restart", life.generate(AFTERWARDS), AFTERWARDS)
    wait_for_rows(run, stored_keys([AFTERWARDS]), "the engine stores again")
    log = life.end()
    run.report.check("both kills took place", re.findall(r"MEDDLING killed \d+ at (\w+)", log), ["load", "save"])
    run.report.check("each loss is one line for each connection at most", 1 <= log.count("does not answer") <= 6)
    return log


def back(run):
    """The rows that were stored after all that are found by the next engine, in a server's usual three processes."""
    life = tier_life(run, "back", environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"})
    answer = life.generate(AFTERWARDS)
    run.same("after the restart, another engine", answer, AFTERWARDS)
    run.report.check("after the restart: found again", answer["cached"], loadable(AFTERWARDS))
    run.daemon.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    run.same("a daemon that hangs", life.generate(PROMPTS[0]), PROMPTS[0])
    waited = time.monotonic() - begun
    run.daemon.process.send_signal(signal.SIGCONT)
    run.report.check("a daemon that hangs is not waited for", waited < HANG_SECONDS_MAX)
    return life.end()


def wide(run):
    """Chunks of two blocks are rows of their own, in a namespace of their own."""
    before = run.stats()
    life = tier_life(run, "wide-cold", blocks_per_chunk=2)
    answer = life.generate(AFTERWARDS)
    run.same("two blocks a chunk, cold", answer, AFTERWARDS)
    run.report.check("two blocks a chunk, cold: nothing is found under the other rows' keys", answer["cached"], 0)
    model, compat_key, row_bytes = NAMESPACE.search(life.log()).groups()
    run.report.check("two blocks a chunk: bytes a row", int(row_bytes), 2 * BLOCK_BYTES)
    run.namespace = (model, compat_key)
    wait_for_rows(run, stored_keys([AFTERWARDS], 2), "chunks are stored")
    log = life.end()
    life = tier_life(run, "wide-warm", blocks_per_chunk=2)
    answer = life.generate(AFTERWARDS)
    run.same("two blocks a chunk, warm", answer, AFTERWARDS)
    chunks = (len(tokens_of(AFTERWARDS)) - 1) // (2 * BLOCK_TOKENS)
    run.report.check("two blocks a chunk, warm: found", answer["cached"], chunks * 2 * BLOCK_TOKENS)
    run.report.check("two blocks a chunk: kvd's hits", run.stats()["hits_total"] - before["hits_total"], chunks)
    return log + life.end()


def set_up_wrong(run):
    """Mistakes in the options: one line, and the engine computes."""
    before = run.stats()
    life = tier_life(run, "wrong", options={"retention": "for ever", "sockets": 1})
    run.same("wrong options", life.generate(AFTERWARDS), AFTERWARDS)
    log = life.end()
    lines = re.findall(r"infera-kvd is not used: (.*)", log)
    run.report.check("wrong options: one line", len(lines), 1)
    run.report.check("wrong options: names both", [word in lines[0] for word in ("retention", "sockets")], [True, True])
    run.report.check("wrong options: nothing was asked", run.stats()["gets_total"], before["gets_total"])


def two_ranks(options, cleanup, report):
    """A row holds what both ranks have, in a namespace of its own."""
    run = Run(options, cleanup, report, name="ranks")
    how = {
        "settings": {"tensor_parallel_size": 2},
        "environment": {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
    }
    life = run.life("base", transfer=None, **how).wait_until_ready()
    run.baseline[AFTERWARDS] = life.generate(AFTERWARDS)
    end_of_ranks(life)
    life = tier_life(run, "cold", **how)
    run.same("two ranks, cold", life.generate(AFTERWARDS), AFTERWARDS)
    run.namespace = NAMESPACE.search(life.log()).groups()[:2]
    wait_for_rows(run, stored_keys([AFTERWARDS]), "rows of two ranks are stored")
    end_of_ranks(life)
    life = tier_life(run, "warm", **how)
    answer = life.generate(AFTERWARDS)
    run.same("two ranks, warm", answer, AFTERWARDS)
    report.check("two ranks, warm: found", answer["cached"], loadable(AFTERWARDS))
    report.check("two ranks: kvd's hits", run.stats()["hits_total"], loadable(AFTERWARDS) // BLOCK_TOKENS)
    end_of_ranks(life)


def end_of_ranks(life):
    """Ends an engine with what it leaves in memory: vLLM gives its ranks no time to clean up on a slow machine."""
    files = shared_files(members(life.process.pid))
    life.end()
    for path in files:
        path.unlink(missing_ok=True)


def everything(options, cleanup, report):
    """The lives in order; each goes on where the one before has left the daemon."""
    run = Run(options, cleanup, report)
    base(run)
    logs = [cold(run), warm(run)]
    wrong_row(run)
    logs += [killed(run), back(run), wide(run)]
    set_up_wrong(run)
    errors = [line for log in logs for line in re.findall(r"^.*(?:ERROR|Traceback).*$", log, re.M)]
    report.check("no error in a log", errors, [])
    report.check("the last daemon ends cleanly", run.daemon.stop(), 0)
    two_ranks(options, cleanup, report)


if __name__ == "__main__":
    program(__doc__, everything)

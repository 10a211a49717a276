"""Real engines on a real daemon: what is found again, by whom, and that nothing else changes. Run by scripts/e2e-vllm.sh.

    python3 e2e_vllm.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER

What an engine should answer is never written down: a life without a connector on the same host says it, and every
token and log-probability of every other life must be the same. Last line: `N passed, N failed`.
"""

import argparse
import contextlib
import hashlib
import pathlib
import re
import sys
import time
import traceback

import cbor2
from lives import Daemon, Life, wait_until

import infera_kvd

BLOCK_TOKENS = 32
BLOCK_BYTES = 65536
GROUP = b"\0\0\0\0"
NAMESPACE = re.compile(r"infera-kvd: model (\S+), compat_key (\S+), (\d+) bytes a block")

DOCUMENT = "The quick brown fox jumps over the lazy dog. " * 16
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: a different question?", "unrelated prompt " * 20]
SHARED = "two engines, one daemon, one copy. " * 12
DURING_SAVE = "the daemon goes while this is stored. " * 12
AFTERWARDS = "and this is stored by the next daemon. " * 12


def tokens_of(prompt):
    """The tiny model has a token a byte, numbered as in its vocabulary of sorted signs."""
    return [_TOKENS[byte] for byte in prompt.encode()]


def _byte_tokens():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    signs, extra = {}, 0
    for byte in range(256):
        if byte in printable:
            signs[byte] = chr(byte)
        else:
            signs[byte] = chr(256 + extra)
            extra += 1
    order = sorted(signs.values())
    return {byte: order.index(sign) for byte, sign in signs.items()}


_TOKENS = _byte_tokens()


def block_keys(tokens):
    """The keys of all full blocks, made without vLLM: its published way of naming blocks, and our suffix."""
    parent = hashlib.sha256(cbor2.dumps("vllm-none-hash", canonical=True)).digest()
    keys = []
    for first in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        block = cbor2.dumps((parent, tuple(tokens[first : first + BLOCK_TOKENS]), None), canonical=True)
        parent = hashlib.sha256(block).digest()
        keys.append(parent + GROUP)
    return keys


def loadable(prompt):
    """Tokens of a prompt that can come from outside: full blocks, and never the last token."""
    return (len(prompt.encode()) - 1) // BLOCK_TOKENS * BLOCK_TOKENS


class Report:
    """Checks by name, printed as they are made."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def check(self, name, found, expected=True):
        """One check."""
        good = found == expected
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {found!r}, expected {expected!r}"), flush=True)


class Run:
    """All lives over one socket."""

    def __init__(self, options, cleanup):
        self.options = options
        self.cleanup = cleanup
        self.report = Report()
        self.baseline = {}
        self.daemon = self.start_daemon()
        self.socket = str(self.daemon.socket)
        self.client = infera_kvd.Client(self.socket, client_id="e2e")
        self.namespace = None

    def start_daemon(self):
        """A new incarnation on the same socket."""
        daemon = Daemon(self.options.daemon, self.options.folder)
        self.cleanup.callback(daemon.kill)
        return daemon

    def life(self, name, *, connector="InferaKvdConnector", module="infera_kvd.vllm", environment=None):
        """A new engine process; without `connector` one that has none."""
        transfer = connector and {
            "kv_connector": connector,
            "kv_connector_module_path": module,
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"socket": self.socket},
        }
        life = Life(name, self.options.folder, self.options.model, transfer, environment)
        self.cleanup.callback(life.kill)
        return life

    def stats(self):
        """The daemon's counters."""
        return self.client.stats()

    def same(self, what, answer, prompt):
        """Tokens and log-probabilities are the baseline's, and the request ended as it should."""
        expected = self.baseline[prompt]
        for part in ("tokens", "logprobs", "finish"):
            self.report.check(f"{what}: {part} equal to the baseline", answer[part], expected[part])

    def computed(self, prompt):
        """All tokens of a request whose KV exists at its end: the last one was never put in."""
        return tokens_of(prompt) + self.baseline[prompt]["tokens"][:-1]

    def stored_keys(self, prompts):
        """The keys of every block that these requests compute."""
        return {key for prompt in prompts for key in block_keys(self.computed(prompt))}

    def wait_for_keys(self, prompts, what):
        """Saving is done in the background."""
        keys = sorted(self.stored_keys(prompts))
        wait_until(lambda: all(row.present for row in self.client.locate(*self.namespace, keys, prefix=False)), what)


def base(run):
    """What the engine says without us."""
    life = run.life("base", connector=None).wait_until_ready()
    for prompt in (*PROMPTS, SHARED, DURING_SAVE, AFTERWARDS):
        run.baseline[prompt] = life.generate(prompt)
    run.report.check("base: the whole answer", {a["finish"] for a in run.baseline.values()}, {"length"})
    run.report.check("base: prompts as counted here", run.baseline[SHARED]["prompt_tokens"], len(tokens_of(SHARED)))
    life.end()


def cold(run):
    """An empty daemon: nothing is found, everything is stored."""
    life = run.life("cold").wait_until_ready()
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"cold {number}", answer, prompt)
        run.report.check(f"cold {number}: cached tokens as without us", answer["cached"], run.baseline[prompt]["cached"])
    run.report.check("cold: nothing from outside", life.metrics()["vllm:external_prefix_cache_hits"], 0)
    log = life.end()
    model, compat_key, block_bytes = NAMESPACE.search(log).groups()
    run.namespace = (model, compat_key)
    keys, stats = run.stored_keys(PROMPTS), run.stats()
    run.report.check("cold: bytes a block", int(block_bytes), BLOCK_BYTES)
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
    blocks = {key for prompt in PROMPTS for key in block_keys(tokens_of(prompt))[: loadable(prompt) // BLOCK_TOKENS]}
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
    environment = {"KVD_KILL_AT": "load,save", "KVD_PID_FILE": str(run.daemon.pid_file)}
    environment["PYTHONPATH"] = f"{run.options.python_path}:{pathlib.Path(__file__).resolve().parent}"
    life = run.life("killed", connector="MeddlingConnector", module="meddling", environment=environment)
    life.wait_until_ready()
    run.same("killed at the load", life.generate(PROMPTS[0]), PROMPTS[0])
    run.daemon.wait_for_death()
    run.same("without a daemon", life.generate(PROMPTS[1]), PROMPTS[1])
    for number, other in enumerate(others):
        run.same(f"without a daemon, engine {number}", other.generate(PROMPTS[2]), PROMPTS[2])

    run.daemon = run.start_daemon()
    wait_until(lambda: attached(run.client), "the second daemon answers")
    run.same("killed at the save", life.generate(DURING_SAVE), DURING_SAVE)
    run.daemon.wait_for_death()

    run.daemon = run.start_daemon()
    wait_until(lambda: attached(run.client), "the third daemon answers")
    run.same("after the restart", life.generate(AFTERWARDS), AFTERWARDS)
    run.wait_for_keys([AFTERWARDS], "the engine stores again")
    answer = others[0].generate(AFTERWARDS)
    run.same("after the restart, another engine", answer, AFTERWARDS)
    run.report.check("after the restart: found again", answer["cached"], loadable(AFTERWARDS))
    log = life.end()
    run.report.check("both kills took place", re.findall(r"MEDDLING killed \d+ at (\w+)", log), ["load", "save"])
    run.report.check("the loss is one line for each connection at most", 1 <= log.count("does not answer") <= 6)
    run.report.check("a failed load is no error for the engine", "Recovered from KV load failure" in log)


def attached(client):
    """Whether the daemon answers."""
    try:
        client.attach()
    except infera_kvd.KvdError:
        return False
    return True


def everything(run):
    """The lives in order; each goes on where the one before has left the daemon."""
    wait_until(lambda: attached(run.client), "the daemon answers")
    base(run)
    cold(run)
    first = warm(run)
    second = sharing(run, first)
    wrong_block(run, second)
    killed(run, [first, second])
    for life in (first, second):
        log = life.end()
        run.report.check(f"{life.log_path.stem}: no error in the log", re.findall(r"^.*(?:ERROR|Traceback).*$", log, re.M), [])
    run.report.check("the last daemon ends cleanly", run.daemon.stop(), 0)


def main():
    """Runs everything once; exit code 0 only if every check passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--python-path", required=True, help="where the package infera_kvd is")
    options = parser.parse_args()
    begun = time.monotonic()
    with contextlib.ExitStack() as cleanup:
        run = Run(options, cleanup)
        try:
            everything(run)
        except Exception:  # noqa: BLE001 - counted and shown; the closing line must come
            traceback.print_exc()
            run.report.check("the run came to its end", False)
        report = run.report
    print(f"in {time.monotonic() - begun:.0f} s, logs in {options.folder}")
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(report.failed > 0)


if __name__ == "__main__":
    main()

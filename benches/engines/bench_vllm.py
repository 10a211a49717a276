"""What the vLLM connector costs when it finds nothing, and what it saves when it finds something. Run by `run.sh`.

    python3 bench_vllm.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER [--quick] [PART...]

Parts, each with a daemon of its own; without a name all of them:

    lookup    a look-up of 2 048 blocks that misses, without an engine
    miss      CPU time of an engine whose prompts are never found, against one without a connector; idle steps
    ttft      time to the first token of long prompts: computed, from host memory, from disk
    slow      time to the first token of prompts that only a slow disk has, 0.2 GB/s and a tenth of it, with a model that
              computes little for what it stores, against an engine without a cache

Engines take turns, so that both see the same machine. The last lines are `BAR <id> <value> <bound> ok|short`.
"""

import argparse
import contextlib
import logging
import os
import pathlib
import random
import re
import statistics
import string
import sys
import time
import types

import infera_kvd
from bars import Bars, spread
from blocks import BLOCK_TOKENS, block_keys, tokens_of
from lives import Daemon, Life, wait_until
from runs import NAMESPACE
from slow_disk import slow_disk

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon as Asked
from infera_kvd.engine.keys import Shard
from infera_kvd.engine.options import Options
from infera_kvd.vllm.scheduler import SchedulerHalf

LOOKUP_BLOCKS = 2048
# Bytes per second, and how often the engines are compared. The second is slow for certain; a prompt has 64 MiB.
SLOW_RATES = {200_000_000: 13, 20_000_000: 13}
# So long to compute that what the connector costs besides does not count.
SLOW_PROMPT_TOKENS = 1024
# In which the daemon finds out how slow its disk is.
SLOW_WARM_UPS = 2
# Little to compute for each byte of the cache: 64 KiB a token.
SLOW_MODEL = {
    "load_format": "dummy",
    "hf_overrides": {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 16, "head_dim": 256,
    },
    "kv_cache_memory_bytes": 512 << 20,
}
LONG_MODEL = {
    "hf_overrides": {"max_position_embeddings": 32768},
    "max_model_len": 20480,
    "kv_cache_memory_bytes": 128 << 20,
}
SKIPPED = re.compile(r"infera-kvd, scheduler: .*load_skipped_blocks (\d+)")


class Part:
    """One part: a daemon, engines on it, and prompts that nobody has seen."""

    def __init__(self, name, options, cleanup, bars, arena="1G", disk=None):
        self.options = options
        self.bars = bars
        self.folder = options.folder / name
        self.folder.mkdir()
        self._cleanup = cleanup
        self._arena = arena
        self._flags = ["--long-path", disk, "--long-bytes", "3G", "--drain-on-stop"] if disk else []
        self._random = random.Random(name)
        self.start_daemon()

    def start_daemon(self):
        """A daemon; what the one before had on disk is there."""
        self.daemon = Daemon(self.options.daemon, self.folder, self._arena, self._flags)
        self._cleanup.callback(self.daemon.kill)
        self.client = infera_kvd.Client(str(self.daemon.socket), client_id="bench")
        wait_until(self._answers, "the daemon answers")

    def _answers(self):
        try:
            self.client.attach()
        except infera_kvd.KvdError:
            return False
        return True

    def life(self, name, settings=None, *, connector="InferaKvdConnector", module="infera_kvd.vllm", environment=None):
        """An engine; with `connector=None` one without."""
        transfer = connector and {
            "kv_connector": connector,
            "kv_connector_module_path": module,
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"socket": str(self.daemon.socket)},
        }
        life = Life(name, self.folder, self.options.model, transfer, environment, settings)
        self._cleanup.callback(life.kill)
        return life.wait_until_ready()

    def prompt(self, tokens):
        """Text of so many tokens, one a byte."""
        return "".join(self._random.choices(string.ascii_letters, k=tokens))

    def forget(self, life):
        """Empties the engine's own cache, once it holds nothing for a save any more."""
        for _ in range(100):
            life.generate(self.prompt(8), 1)
            with contextlib.suppress(RuntimeError):
                life.forget()
                return
        raise TimeoutError("the engine's blocks stay in use")

    def wait_until_stored(self, life, blocks):
        """Saving is done in the background, the last of it from the step on that follows a request."""
        life.generate(self.prompt(8), 1)
        wait_until(lambda: self.client.stats()["entries"] >= blocks, f"{blocks} blocks are stored")


def seconds_to_first_token(life, prompt):
    """Of one request alone."""
    begun = time.monotonic()
    life.generate(prompt, 1)
    return time.monotonic() - begun


def cpu_seconds(life):
    """What the engine's process has used so far, all threads together."""
    fields = pathlib.Path("/proc", str(life.process.pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lookup(part):
    """Everything behind vLLM's question, with a real daemon: names, the call, the answer."""
    counters = Counters()
    daemon = Asked([part.client], counters, logging.getLogger())
    half = SchedulerHalf(daemon, Options(), BLOCK_TOKENS, counters, logging.getLogger())
    half.serve([Shard("bench", "bench", 1 << 16)], 1)
    took = []
    for number in range(200 if part.options.quick else 2000):
        request = types.SimpleNamespace(
            request_id=str(number),
            num_tokens=LOOKUP_BLOCKS * BLOCK_TOKENS + 1,
            block_hashes=[os.urandom(32) for _ in range(LOOKUP_BLOCKS)],
            kv_transfer_params=None,
            skip_reading_prefix_cache=False,
            num_computed_tokens=0,
            num_in_flight_tokens=0,
        )
        begun = time.perf_counter()
        found = half.matched_tokens(request, 0)
        took.append((time.perf_counter() - begun) * 1e6)
        assert found == 0
        half.finished(request, [])
    print(f"lookup: {spread(took)} microseconds")
    part.bars.at_most("miss_lookup_us", statistics.median(took), 100)


def miss(part):
    """Prompts that nobody has seen, one engine after the other; what is computed is stored."""
    pairs, requests = (3, 20) if part.options.quick else (9, 60)
    engines = {"without": part.life("without", connector=None), "with": part.life("with")}
    for life in engines.values():
        life.batch([part.prompt(900) for _ in range(4)], 16)
    ratios = []
    for number in range(pairs):
        used = {}
        prompts = [part.prompt(900) for _ in range(requests)]
        # The first of a pair is now this one, now the other.
        for name, life in sorted(engines.items(), reverse=number % 2 == 0):
            before = cpu_seconds(life)
            life.batch(prompts, 16)
            # What is stored in the background counts, too.
            time.sleep(0.3)
            used[name] = cpu_seconds(life) - before
        ratios.append(used["with"] / used["without"])
        print(f"miss: {used['without']:.2f} s without, {used['with']:.2f} s with")
    for life in engines.values():
        life.end()
    print(f"miss: CPU time with the connector against without: {spread(ratios)}")
    part.bars.at_most("miss_cpu_ratio", statistics.median(ratios), 1.05)

    steps_file = part.folder / "steps"
    environment = {"KVD_TIMED_FILE": str(steps_file)}
    environment["PYTHONPATH"] = f"{part.options.python_path}:{pathlib.Path(__file__).resolve().parent}"
    life = part.life("timed", connector="TimedConnector", module="timed", environment=environment)
    life.generate(part.prompt(100), 100 if part.options.quick else 1000)
    life.end()
    steps = [float(line) for line in steps_file.read_text().splitlines()]
    print(f"miss: an idle step: {spread(steps)} microseconds")
    part.bars.at_most("idle_step_us", statistics.median(steps), 20)


def ttft(part):
    """A table: what a hit saves."""
    lengths, rounds = ([1024, 4096], 1) if part.options.quick else ([1024, 4096, 16384], 3)
    rows = {length: {"computed": [], "host": [], "disk": []} for length in lengths}
    prompts = {length: [part.prompt(length + 1) for _ in range(rounds)] for length in lengths}
    life = part.life("engine", LONG_MODEL)
    seconds_to_first_token(life, part.prompt(2048))
    blocks = 2048 // BLOCK_TOKENS
    for length in lengths:
        for prompt in prompts[length]:
            rows[length]["computed"].append(seconds_to_first_token(life, prompt))
            blocks += length // BLOCK_TOKENS
            part.wait_until_stored(life, blocks)
            part.forget(life)
            rows[length]["host"].append(seconds_to_first_token(life, prompt))
    part.daemon.stop()
    part.start_daemon()
    # The engine sees that it is back, and the daemon reads for the first time.
    part.forget(life)
    seconds_to_first_token(life, prompts[lengths[0]][0])
    for length in lengths:
        for prompt in prompts[length]:
            part.forget(life)
            if prompt != prompts[lengths[0]][0]:
                rows[length]["disk"].append(seconds_to_first_token(life, prompt))
    life.end()
    print("| prompt | computed | from host memory | from disk |\n|---|---|---|---|")
    for length, row in rows.items():
        cells = [f"{statistics.median(seconds) * 1000:.0f} ms" if seconds else "" for seconds in row.values()]
        print(f"| {length} tokens | {' | '.join(cells)} |")


def slow(part, disk):
    """Prompts that only a slow disk has, against an engine without a cache; then from host memory."""
    prompts = {
        rate: [part.prompt(SLOW_PROMPT_TOKENS + 1) for _ in range(SLOW_WARM_UPS + (3 if part.options.quick else pairs))]
        for rate, pairs in SLOW_RATES.items()
    }
    cached = part.life("with", SLOW_MODEL)
    bare = part.life("without", SLOW_MODEL, connector=None)
    for prompt in (prompt for some in prompts.values() for prompt in some):
        seconds_to_first_token(cached, prompt)
    part.wait_until_stored(cached, sum(map(len, prompts.values())) * SLOW_PROMPT_TOKENS // BLOCK_TOKENS)
    for rate, some in prompts.items():
        part.daemon.stop()
        part.start_daemon()
        disk.slow_down(part.daemon.process.pid, rate)
        against_a_slow_disk(part, rate / 1e9, some, cached, bare)
    skipped = SKIPPED.search(cached.end())
    print(f"slow: {skipped.group(1) if skipped else 0} blocks were computed although they were stored")
    bare.end()


def against_a_slow_disk(part, rate, prompts, cached, bare):
    """One rate. `cached`, `bare`: the engines with and without a cache."""
    ratios, found = [], cached.metrics()["vllm:external_prefix_cache_hits"]
    for number, prompt in enumerate(prompts):
        took = {}
        for life in (bare, cached) if number % 2 else (cached, bare):
            part.forget(life)
            took[life] = seconds_to_first_token(life, prompt)
        if number >= SLOW_WARM_UPS:
            ratios.append(took[cached] / took[bare])
            print(f"slow: {rate} GB/s: {took[bare] * 1000:.0f} ms without a cache, {took[cached] * 1000:.0f} ms with")
    tokens = cached.metrics()["vllm:external_prefix_cache_hits"] - found
    print(f"slow: {rate} GB/s: {tokens:.0f} tokens of {len(prompts) * SLOW_PROMPT_TOKENS} were loaded")
    print(f"slow: {rate} GB/s: against computing: {spread(ratios)}")
    part.bars.at_most(f"slow_disk_{rate}_ttft_ratio", statistics.median(ratios), 1.05)
    # What is asked for is read although nobody waits for it, and then loaded from host memory.
    namespace = NAMESPACE.search(cached.log()).groups()[:2]
    keys = block_keys(tokens_of(prompts[-1]))
    in_memory = lambda: all(row.tier == "host" for row in part.client.locate(*namespace, keys))  # noqa: E731 - called here only
    wait_until(in_memory, "the last prompt is read")
    part.forget(cached)
    missed = SLOW_PROMPT_TOKENS - cached.generate(prompts[-1], 1)["cached"]
    part.bars.at_most(f"slow_disk_{rate}_tokens_not_loaded_from_memory", missed, 0)


def main():
    """Runs the parts; exit code 1 if a bar is short."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--python-path", required=True, help="where the package infera_kvd is")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="*", metavar="PART", help="lookup, miss, ttft, slow")
    options = parser.parse_args()
    parts = options.parts or ["lookup", "miss", "ttft", "slow"]
    bars = Bars()
    for name in parts:
        with contextlib.ExitStack() as cleanup:
            match name:
                case "lookup":
                    lookup(Part(name, options, cleanup, bars))
                case "miss":
                    miss(Part(name, options, cleanup, bars))
                case "ttft":
                    ttft(Part(name, options, cleanup, bars, disk=options.folder / "disk"))
                case "slow":
                    disk = cleanup.enter_context(slow_disk(options.folder / "slow-disk"))
                    slow(Part(name, options, cleanup, bars, arena="3G", disk=disk.path), disk)
                case _:
                    parser.error(f"no part {name}")
    bars.show()
    sys.exit(bars.is_short)


if __name__ == "__main__":
    main()

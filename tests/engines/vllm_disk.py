"""The disk tier under an engine: what comes back after the daemon lost its memory, and that rotten bytes never do."""

import subprocess

from blocks import BLOCK_TOKENS, block_keys, loadable, prompt_keys, tokens_of
from lives import wait_until
from runs import Run

DISK_BYTES = "256M"
PAGE_BYTES = 4096


def everything(options, cleanup, report, baseline, prompts):
    """Stored by one engine, found by the next one behind a restarted daemon, corrupted, computed again."""
    disk = options.folder / "disk-tier"
    flags = ("--long-path", disk, "--long-bytes", DISK_BYTES)
    run = Run(options, cleanup, report, name="disk", baseline=baseline, flags=flags)
    store(run, prompts)
    life = found_on_disk(run, prompts)
    found_rotten(run, life, prompts, disk)
    life.end()
    report.check("disk: the last daemon ends cleanly", run.daemon.stop(), 0)


def store(run, prompts):
    """An engine stores, and everything goes to disk; then the daemon and its memory are gone at once."""
    life = run.life("storing").wait_until_ready()
    for number, prompt in enumerate(prompts):
        run.same(f"disk, storing {number}", life.generate(prompt), prompt)
    run.remember_namespace(life.log())
    run.wait_for_keys(prompts, "the engine stores")
    life.end()
    kvdctl = run.options.daemon.parent / "kvdctl"
    subprocess.run([kvdctl, "--socket", run.socket, "drain"], check=True, timeout=60, capture_output=True)
    on_disk = run.stats()["disk_entries"]
    run.report.check("disk: everything is written", on_disk, len(run.stored_keys(prompts)))
    run.daemon.kill()


def found_on_disk(run, prompts):
    """A new daemon and a new engine: all hits come from disk."""
    restart(run)
    before = run.stats()
    run.report.check("disk: the new daemon has nothing in memory", before["host_bytes"], 0)
    life = run.life("from-disk").wait_until_ready()
    for number, prompt in enumerate(prompts):
        answer = life.generate(prompt)
        run.same(f"from disk {number}", answer, prompt)
        run.report.check(f"from disk {number}: cached tokens", answer["cached"], loadable(prompt))
    after, blocks = run.stats(), len(prompt_keys(prompts))
    run.report.check("from disk: tokens from outside", life.metrics()["vllm:external_prefix_cache_hits"], blocks * BLOCK_TOKENS)
    for name, expected in {"hits_total": blocks, "misses_total": 0, "disk_corrupt_total": 0}.items():
        run.report.check(f"from disk: kvd's {name}", after[name] - before[name], expected)
    # What it computed itself is stored already. The engine asks before it would store it again, and whatever is asked for
    # is read: there is no question without a promise. So each block is read, and each once.
    computed = len(run.stored_keys(prompts)) - blocks
    run.report.check("from disk: blocks are computed that the disk has", computed > 0)
    # The step in which the last of it is handed to the background.
    life.generate("x", 1)
    loads = lambda: run.stats()["disk_loads_total"] - before["disk_loads_total"]  # noqa: E731 - called here only
    wait_until(lambda: loads() >= blocks + computed, "the computed blocks are asked for")
    run.report.check("from disk: kvd's loads", loads(), blocks + computed)
    return life


def found_rotten(run, life, prompts, disk):
    """Every value on disk rots while the daemon is down. The engine lives on and forgets what it has itself."""
    run.report.check("rot: the daemon ends cleanly", run.daemon.stop(), 0)
    run.report.check("rot: there is something to spoil", spoil(disk / "infera-kvd") > 0)
    life.forget()
    restart(run)
    before = run.stats()
    for number, prompt in enumerate(prompts):
        run.same(f"rot {number}", life.generate(prompt), prompt)
    after = run.stats()
    first_blocks = {block_keys(tokens_of(prompt))[0] for prompt in prompts}
    run.report.check("rot: the daemon noticed", after["disk_corrupt_total"] - before["disk_corrupt_total"] >= len(first_blocks))
    run.report.check("rot: no hit", after["hits_total"] - before["hits_total"], 0)


def restart(run):
    """A new daemon on the same disk, once it has read what is there."""
    run.start_daemon()
    run.wait_for_daemon()
    wait_until(lambda: run.stats()["disk_devices_ready"] == 1, "the disk tier is ready")


def spoil(folder):
    """Turns a byte in every page of every container that holds anything; how many."""
    spoilt = 0
    for path in folder.glob("container-*"):
        content = bytearray(path.read_bytes())
        for first in range(0, len(content), PAGE_BYTES):
            if any(content[first : first + PAGE_BYTES]):
                content[first] ^= 0xFF
                spoilt += 1
        path.write_bytes(content)
    return spoilt

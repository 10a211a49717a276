"""vLLM's OpenAI server, killed with SIGKILL in the middle of a request and started again. Run by scripts/e2e-engines.sh.

    python3 e2e_vllm_server.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

The engine is in several processes, as its users have it. Expected answers come from an engine without a connector.
"""

import threading
import time

from blocks import loadable, prompt_keys
from lives import wait_until
from report import program
from runs import Run
from servers import Server

DOCUMENT = "A server that is killed leaves its blocks behind. " * 16
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: another question?"]
INTERRUPTED = "and this request never gets its answer. " * 16


def base(run):
    """What the engine says without us."""
    life = run.life("base", transfer=None).wait_until_ready()
    for prompt in PROMPTS:
        run.baseline[prompt] = life.generate(prompt)
    life.end()


def serve(run, name):
    """A server with the connector."""
    server = Server(name, run.folder, run.options.model, run.transfer())
    run.cleanup.callback(server.kill)
    return server.wait_until_ready()


def killed(run):
    """Stores, is killed while it answers; the daemon gets back everything that was lent."""
    sessions = run.stats()["sessions"]
    server = serve(run, "killed")
    for number, prompt in enumerate(PROMPTS):
        run.same(f"cold {number}", server.generate(prompt), prompt)
    run.remember_namespace(server.log())
    run.wait_for_keys(PROMPTS, "the server stores")
    thread = threading.Thread(target=_ask_in_vain, args=(server,), daemon=True)
    thread.start()
    time.sleep(0.3)
    left = server.kill()
    thread.join()
    print(f"killed: left {len(left)} files in /dev/shm, removed")
    wait_until(lambda: run.stats()["sessions"] == sessions, "the daemon ends the sessions of the killed")
    stats = run.stats()
    run.report.check("killed: nothing is lent any more", [stats[n] for n in ("leases", "tickets", "leased_bytes")], [0, 0, 0])


def _ask_in_vain(server):
    try:
        server.generate(INTERRUPTED, 1000)
    except OSError:
        return
    print("killed: the request was answered before the kill")


def again(run):
    """A new server finds what the killed one has stored."""
    before = run.stats()
    server = serve(run, "again")
    for number, prompt in enumerate(PROMPTS):
        answer = server.generate(prompt)
        run.same(f"again {number}", answer, prompt)
        run.report.check(f"again {number}: cached tokens", answer["cached"], loadable(prompt))
    hits = run.stats()["hits_total"] - before["hits_total"]
    run.report.check("again: kvd's hits", hits, len(prompt_keys(PROMPTS)))
    run.report.check("again: Prometheus", server.metric("vllm:infera_kvd_loaded_blocks_total"), hits)
    by_source = {key: n for key, n in server.metrics().items() if key.startswith("vllm:prompt_tokens_cached_by_source_total")}
    from_host = sum(n for key, n in by_source.items() if 'source="host' in key)
    run.report.check(f"again: vLLM counts them as the host's", from_host, hits * 32)
    run.report.check("again: nothing is left in /dev/shm", server.end(), [])


def everything(options, cleanup, report):
    """In order."""
    run = Run(options, cleanup, report)
    base(run)
    killed(run)
    again(run)
    report.check("the daemon ends cleanly", run.daemon.stop(), 0)


if __name__ == "__main__":
    program(__doc__, everything)

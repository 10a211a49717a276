"""Real SGLang servers on a real daemon, by both ways: what is found after a restart, and that nothing else changes.

To be run by the Python of an environment that has SGLang; see docs/sglang.md. HiCache runs on a CPU with the stand-ins of
`sglang_cpu`. What an engine should answer is said by a server without any of it on the same host, in tokens and
log-probabilities. Last line: `N passed, N failed`.
"""

import hashlib
import json
import re
import time

import traps
from blocks import tokens_of
from lives import Daemon, wait_until
from report import program
from sglang_life import Server

import infera_kvd

PAGE_TOKENS = 32
# K and V of 4 layers with 2 heads of 64 numbers of 2 bytes.
PAGE_BYTES = 2 * 4 * PAGE_TOKENS * 2 * 64 * 2
# A client that has lost its daemon tries again once a second.
RETRY_SECONDS = 1.2
GROUP = b"\0\0\0\0"
NAMESPACE = re.compile(r"infera-kvd: model (\S+), compat_key (\S+), (\d+) bytes a page")
# SGLang logs troubles of its own on a CPU, which are not looked at.
TROUBLE = re.compile(r"^.*(?:infera-kvd.* failed|infera-kvd is not used|HiCache .* failed|Scheduler hit an exception).*$", re.M)
# HiCache asks the daemon for 256 tokens or more, so each is longer than that.
DOCUMENT = "The quick brown fox jumps over the lazy dog. " * 16
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: a different question?", "unrelated prompt " * 20]
DURING_SAVE = "the daemon goes while this is stored. " * 12
AFTERWARDS = "and this is stored by the next daemon. " * 12


def page_keys(tokens, page_tokens=PAGE_TOKENS):
    """The keys of all full pages, made without SGLang: its way of naming pages, and our suffix."""
    digest, keys = b"", []
    for first in range(0, len(tokens) - page_tokens + 1, page_tokens):
        page = tokens[first : first + page_tokens]
        digest = hashlib.sha256(digest + b"".join(token.to_bytes(4, "little") for token in page)).digest()
        keys.append(digest + GROUP)
    return keys


def loadable(prompt):
    """Tokens of a prompt that can come from outside: full pages, and never the last token."""
    return (len(prompt.encode()) - 1) // PAGE_TOKENS * PAGE_TOKENS


class Run:
    """All servers over one socket."""

    def __init__(self, options, cleanup, report):
        self.options, self.cleanup, self.report = options, cleanup, report
        self.baseline = {}
        self.start_daemon()
        self.socket = str(self.daemon.socket)
        self.trigger = options.folder / "trigger"
        self.client = infera_kvd.Client(self.socket, client_id="e2e")
        self.namespace = None
        wait_until(self.is_answered, "the daemon answers")

    def start_daemon(self):
        """A new incarnation on the same socket."""
        self.daemon = Daemon(str(self.options.daemon), self.options.folder)
        self.cleanup.callback(self.daemon.kill)

    def is_answered(self):
        """Whether the daemon answers."""
        try:
            self.client.attach()
        except infera_kvd.KvdError:
            return False
        return True

    def server(self, name, *arguments, page_tokens=PAGE_TOKENS):
        """A new server, ready."""
        server = Server(
            name,
            self.options.folder,
            self.options.model,
            self.options.python_path,
            *("--page-size", str(page_tokens), *arguments),
            environment=traps.environment(self.trigger, self.daemon.pid_file),
        )
        self.cleanup.callback(server.kill)
        return server.wait_until_ready()

    def check(self, *arguments):
        """One check."""
        self.report.check(*arguments)

    def ask(self, what, server, prompt, *, cached=None, details=None):
        """One request, whose answer is the baseline's; `cached`: its cached tokens, `details`: some of them by place."""
        answer = server.generate(prompt)
        for part in ("tokens", "logprobs", "finish"):
            self.check(f"{what}: {part} equal to the baseline", answer[part], self.baseline[prompt][part])
        if cached is not None:
            self.check(f"{what}: cached tokens", answer["cached"], cached)
        for place, tokens in (details or {}).items():
            self.check(f"{what}: of them from {place}", answer["details"].get(place, 0), tokens)

    def stored_keys(self, prompts):
        """The keys of every page that these requests compute: the KV of the last token was never made."""
        return {key for prompt in prompts for key in page_keys(tokens_of(prompt) + self.baseline[prompt]["tokens"][:-1])}

    def wait_for_keys(self, keys, what):
        """Saving is done in the background."""
        wait_until(lambda: all(row.present for row in self.client.locate(*self.namespace, sorted(keys), prefix=False)), what)

    def remember_namespace(self, server):
        """Takes the namespace from a server's log; bytes of a page."""
        model, compat_key, page_bytes = NAMESPACE.search(server.log()).groups()
        self.namespace = (model, compat_key)
        return int(page_bytes)

    def kill_daemon_at(self, moment, question):
        """Asks, with the daemon killed at a moment meanwhile; then starts the next daemon."""
        self.trigger.write_text(moment)
        question()
        self.daemon.wait_for_death()

    def restart_daemon(self):
        """The next daemon, with nothing in memory."""
        self.start_daemon()
        wait_until(self.is_answered, "the next daemon answers")
        time.sleep(RETRY_SECONDS)


def hicache(run, name, *, layout="page_first_direct", page_tokens=PAGE_TOKENS):
    """A server with HiCache on the daemon."""
    extra = {"backend_name": "infera-kvd", "module_path": "sglang_meddling", "class_name": "MeddlingStorage", "interface_v1": 1}
    return run.server(
        name,
        *("--enable-hierarchical-cache", "--hicache-io-backend", "direct", "--hicache-mem-layout", layout),
        *("--hicache-write-policy", "write_through", "--hicache-ratio", "2"),
        *("--hicache-storage-prefetch-policy", "wait_complete", "--hicache-storage-backend", "dynamic"),
        *("--hicache-storage-backend-extra-config", json.dumps(extra | {"socket": run.socket})),
        page_tokens=page_tokens,
    )


def linker(run, name, *, page_tokens=PAGE_TOKENS):
    """A server with the linker on the daemon."""
    extra = {"linker": "MeddlingLinker", "linker_module_path": "sglang_meddling", "linker_extra_config": {"socket": run.socket}}
    return run.server(
        name,
        *("--enable-unified-cache-external-linker", "--unified-cache-external-linker-backend", "dynamic"),
        *("--unified-cache-external-linker-config", json.dumps(extra)),
        page_tokens=page_tokens,
    )


def base(run):
    """What the engine says without us."""
    server = run.server("base")
    for prompt in (*PROMPTS, DURING_SAVE, AFTERWARDS):
        run.baseline[prompt] = server.generate(prompt)
        run.check("base: the prompt as counted here", run.baseline[prompt]["prompt_tokens"], len(tokens_of(prompt)))
    server.end()


def cold(run, way, start):
    """Nothing is found; everything is stored, once, under the keys computed here."""
    before, server = run.client.stats(), start(run, f"{way}-cold")
    run.check(f"{way} cold: bytes a page", run.remember_namespace(server), PAGE_BYTES)
    for number, prompt in enumerate(PROMPTS):
        run.ask(f"{way} cold {number}", server, prompt, cached=run.baseline[prompt]["cached"])
    keys = run.stored_keys(PROMPTS)
    run.wait_for_keys(keys, f"{way}: everything is stored")
    after = run.client.stats()
    run.check(f"{way} cold: kvd took each page once", after["sets_total"] - before["sets_total"], len(keys))
    run.check(f"{way} cold: kvd's bytes", after["host_bytes"] - before["host_bytes"], len(keys) * PAGE_BYTES)
    run.check(f"{way} cold: kvd had no hits", after["hits_total"], before["hits_total"])
    run.check(f"{way} cold: no trouble in the log", TROUBLE.findall(server.end()), [])


def warm(run, way, start, place):
    """A new server process finds what the one before has stored. `place`: what SGLang calls where it was."""
    before, server = run.client.stats(), start(run, f"{way}-warm")
    first, second, third = (loadable(prompt) for prompt in PROMPTS)
    shared = loadable(DOCUMENT)
    run.ask(f"{way} warm 0", server, PROMPTS[0], cached=first, details={place: first, "device": 0})
    # HiCache takes no page alone from outside, the linker does.
    tail = second - shared if way == "linker" else 0
    run.ask(f"{way} warm 1", server, PROMPTS[1], cached=shared + tail, details={place: tail, "device": shared})
    run.ask(f"{way} warm 2", server, PROMPTS[2], cached=third, details={place: third, "device": 0})
    after = run.client.stats()
    hits = (first + tail + third) // PAGE_TOKENS
    run.check(f"{way} warm: kvd's hits", after["hits_total"] - before["hits_total"], hits)
    run.check(f"{way} warm: kvd's misses", after["misses_total"] - before["misses_total"], 0)
    run.check(f"{way} warm: nothing is stored twice", after["sets_total"], before["sets_total"])
    return server


def wrong_page(run, way, server):
    """Negative control: the output does depend on the bytes that are loaded."""
    key, other = (page_keys(tokens_of(PROMPTS[0]))[number] for number in (7, 8))
    original, value = run.client.get(*run.namespace, key), run.client.get(*run.namespace, other)
    run.check(f"{way} control: two pages of the engine's", (len(value), value == original), (PAGE_BYTES, False))
    run.check(f"{way} control: the wrong one is stored", run.client.put(*run.namespace, key, value), None)
    server.forget()
    answer = server.generate(PROMPTS[0])
    run.check(f"{way} control: it was loaded", answer["cached"], loadable(PROMPTS[0]))
    run.check(f"{way} control: a wrong page changes the output", answer["logprobs"] != run.baseline[PROMPTS[0]]["logprobs"])
    run.client.put(*run.namespace, key, original)
    server.forget()


def killed(run, way, server, moments):
    """The daemon is killed while it is used: every answer is right, and what is stored later is found again.

    `moments`: (moment of a load, tokens that are used nevertheless).
    """
    for moment, cached in moments:
        ask = lambda: run.ask(f"{way} killed at {moment}", server, PROMPTS[0], cached=cached)  # noqa: B023, E731 - called at once
        run.kill_daemon_at(moment, ask)
        server.forget()
        run.ask(f"{way} without a daemon", server, PROMPTS[2], cached=0)
        run.restart_daemon()
        server.forget()
        run.ask(f"{way} on the next daemon", server, PROMPTS[0], cached=0)
        run.wait_for_keys(run.stored_keys(PROMPTS[:1]), f"{way}: the server stores again")
        server.forget()
    run.kill_daemon_at("save", lambda: run.ask(f"{way} killed at save", server, DURING_SAVE, cached=0))
    run.restart_daemon()
    run.ask(f"{way} after the restart", server, AFTERWARDS, cached=0)
    run.wait_for_keys(run.stored_keys([AFTERWARDS]), f"{way}: the server stores after all")
    server.forget()
    run.ask(f"{way} after the restart, again", server, AFTERWARDS, cached=loadable(AFTERWARDS))
    log = server.end()
    expected = [*(moment for moment, _ in moments), "save"]
    run.check(f"{way}: all kills took place", re.findall(r"MEDDLING killed \d+ at ([\w ]+)", log), expected)
    run.check(f"{way}: one line for each loss", log.count("does not answer"), len(expected))
    run.check(f"{way}: and one when it is back", log.count("answers again"), len(expected))
    run.check(f"{way}: no trouble in the log", TROUBLE.findall(log), [])


def changed(run, way, server):
    """After a change of layout or page size nothing of before is found, and nothing is wrong."""
    before = run.client.stats()
    run.ask(f"{way}", server, AFTERWARDS, cached=0)
    after = run.client.stats()
    run.check(f"{way}: kvd had no hits", after["hits_total"], before["hits_total"])
    old = run.namespace
    run.remember_namespace(server)
    run.check(f"{way}: another namespace", run.namespace != old)
    wait_until(lambda: run.client.stats()["sets_total"] > before["sets_total"], f"{way}: stored")


def everything(options, cleanup, report):
    """The servers in order; each goes on where the one before has left the daemon."""
    run = Run(options, cleanup, report)
    base(run)

    cold(run, "hicache", hicache)
    server = warm(run, "hicache", hicache, "storage")
    wrong_page(run, "hicache", server)
    killed(run, "hicache", server, [("load", 0)])
    # The memory of a page is then 8 runs instead of 2.
    server = hicache(run, "hicache-layout", layout="layer_first")
    changed(run, "hicache, other layout", server)
    run.wait_for_keys(run.stored_keys([AFTERWARDS]), "the other layout is stored")
    server.forget()
    found = loadable(AFTERWARDS)
    run.ask("hicache, other layout, again", server, AFTERWARDS, cached=found, details={"storage": found})
    server.end()

    cold(run, "linker", linker)
    server = warm(run, "linker", linker, "host")
    wrong_page(run, "linker", server)
    # Alone, a lost page is computed instead of ending the request; what is pinned needs no daemon.
    killed(run, "linker", server, [("fetch", 0), ("after fetch", loadable(PROMPTS[0]))])
    server = linker(run, "linker-page", page_tokens=64)
    changed(run, "linker, other page size", server)
    run.check("linker: it says that it is experimental", server.end().count("the linker is experimental"), 1)
    run.check("the last daemon ends cleanly", run.daemon.stop(), 0)


if __name__ == "__main__":
    program(__doc__, everything)

"""Two engines on two hosts behind the router: where requests go, why, and what comes of it. Run by scripts/e2e-engines.sh.

    python3 e2e_router.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

Everything is real: vLLM with its own events, a daemon for each host, etcd, and what is beside the daemon's binary:
infera-router, infera-register, kvdctl. A first turn that has to be somewhere is asked of the engine itself, so the
router knows of it by events only.
"""

import threading
import time

from conversations import Conversation, cached_share, explanation, have, mean_milliseconds
from endpoints import TOKENS
from fleets import Fleet
from lives import wait_until
from report import program

OBSERVED = "infera_router_cached_tokens_observed_total"
FROM_OUTSIDE = "vllm:external_prefix_cache_hits_total"
RESTART_SECONDS = 5
PROMPTS = ["The router asks one of two. " * 12, "Whoever is asked says the same. " * 20]
CONVERSATIONS, TURNS = 5, 3


class Scene(Fleet):
    """A fleet in which conversations begin."""

    def __init__(self, options, cleanup, report):
        super().__init__(options, cleanup, report)
        self.report, self._names = report, 0

    def conversation(self, host):
        """One whose first turn was asked of a host's engine; and what the router says once it has heard of it."""
        self._names += 1
        conversation = Conversation(f"conversation {self._names}")
        tokens = conversation.turn(host.engine.chat)["prompt_tokens"]
        return conversation, self.wait_for(conversation, host, "device", tokens)


def same_answers(scene):
    """Through the router comes what the engines say."""
    report, (one, other) = scene.report, scene.hosts
    for number, prompt in enumerate(PROMPTS):
        expected = one.engine.generate(prompt)
        report.check(f"same {number}: both engines agree", other.engine.generate(prompt)["tokens"], expected["tokens"])
        for turn in range(2):
            answer = scene.router.generate(prompt)
            for part in ("tokens", "logprobs", "finish"):
                report.check(f"same {number}, {turn}: {part} through the router", answer[part], expected[part])
        messages = [{"role": "user", "content": prompt}]
        expected = one.engine.chat(messages, TOKENS)
        for kind, ask in {"at once": scene.router.chat, "as a stream": scene.router.stream}.items():
            answer = ask(messages, TOKENS)
            for part in ("tokens", "text", "prompt_tokens"):
                report.check(f"same {number}, a chat {kind}: {part}", answer[part], expected[part])


def follow_ups(scene):
    """A conversation goes on where it began, whichever engine that was."""
    for host in [*scene.hosts, *scene.hosts]:
        conversation, answer = scene.conversation(host)
        what = f"follow-up to {host.id}"
        scene.report.check(f"{what}: why", answer["reason"], "device")
        scene.report.check(f"{what}: its host", answer["targets"][host.worker.id]["host_id"], host.id)
        other = answer["targets"][scene.other(host).worker.id]["terms"]
        credit = [other[f"{tier}_tokens"] for tier in ("device", "l2", "l3", "l4")]
        scene.report.check(f"{what}: nothing elsewhere", credit, [0, 0, 0, 0])
        turn_is_right(scene, conversation, host, answer, "device", what)


def turn_is_right(scene, conversation, host, explained, tier, what):
    """The next turn goes where it was said to go, and as much is found there as was said."""
    before, outside = scene.router.metric(OBSERVED), host.engine.metric(FROM_OUTSIDE)
    promised = explained["targets"][host.worker.id]["terms"][f"{tier}_tokens"]
    turn, worker = scene.router.picked(lambda: conversation.turn(scene.router.chat))
    scene.report.check(f"{what}: the worker", worker, host.worker.id)
    scene.report.check(f"{what}: {promised:.0f} tokens are cached", turn["cached"], promised)
    scene.report.check(f"{what}: as many as the router counts", scene.router.metric(OBSERVED) - before, turn["cached"])
    loaded = 0 if tier == "device" else turn["cached"]
    scene.report.check(f"{what}: the daemon's part", host.engine.metric(FROM_OUTSIDE) - outside, loaded)


def tiers(scene):
    """What the device has lost is in the host's memory, and what that has lost is on its disk: still worth a request there."""
    for host in scene.hosts:
        conversation, answer = scene.conversation(host)
        tokens = answer["targets"][host.worker.id]["terms"]["device_tokens"]
        for tier, lose in {"l2": host.engine.forget, "l3": host.lose_all}.items():
            what = f"{tier} of {host.id}"
            lose()
            answer = scene.wait_for(conversation, host, tier, tokens)
            print(explanation(answer, scene.host_of()), flush=True)
            scene.report.check(f"{what}: why", answer["reason"], tier)
            terms = answer["targets"][host.worker.id]["terms"]
            scene.report.check(f"{what}: nothing on the device", terms["device_tokens"], 0)
            scene.report.check(f"{what}: loading takes time", terms["load_seconds"] > 0)
            turn_is_right(scene, conversation, host, answer, tier, what)
            # The turn's own blocks count from now on.
            tokens = scene.wait_for(conversation, host, "device", tokens)["targets"][host.worker.id]["terms"]["device_tokens"]


class Asking:
    """Somebody who asks the router all the time, and counts."""

    def __init__(self, router, prompt, expected):
        self.answers, self.wrong = 0, []
        self._router, self._prompt, self._expected = router, prompt, expected
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asking", daemon=True)
        self._thread.start()

    def stop(self):
        """The last answer is waited for."""
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.is_set():
            try:
                tokens = self._router.generate(self._prompt)["tokens"]
            except OSError as error:
                self.wrong.append(repr(error))
                continue
            self.answers += 1
            if tokens != self._expected:
                self.wrong.append(tokens)


def engine_killed(scene):
    """An engine dies under requests: none fails. The next one on its host finds what it had."""
    host, report = scene.hosts[0], scene.report
    conversation, answer = scene.conversation(host)
    tokens = answer["targets"][host.worker.id]["terms"]["device_tokens"]
    host.engine.forget()
    scene.wait_for(conversation, host, "l2", tokens)
    prompts = [f"asked while an engine dies, {number}. " * 8 for number in range(3)]
    expected = [scene.other(host).engine.generate(prompt)["tokens"] for prompt in prompts]
    for prompt in prompts[:2]:
        host.engine.generate(prompt)
    asking = [Asking(scene.router, *each) for each in zip(prompts, expected, strict=True)]
    wait_until(lambda: all(each.answers >= 2 for each in asking), "all are answered")
    host.worker.kill_engine()
    counts = [each.answers for each in asking]
    wait_until(lambda: all(each.answers >= n + 5 for each, n in zip(asking, counts, strict=True)), "all go on")
    for each in asking:
        each.stop()
    report.check("killed: no request failed, no answer is another one", [each.wrong for each in asking], [[], [], []])
    report.check("killed: the router knows", scene.router.workers(), [scene.other(host).worker.id])
    host.start_engine().wait_until_registered()
    scene.router.wait_until_ready(2)
    answer = scene.wait_for(conversation, host, "l2", tokens)
    turn_is_right(scene, conversation, host, answer, "l2", "back")


def router_restarted(scene):
    """A new router knows what the old one knew, by replay and snapshot."""
    known = []
    for host in scene.hosts:
        conversation, answer = scene.conversation(host)
        known.append((conversation, host, "l2", answer["targets"][host.worker.id]["terms"]["device_tokens"]))
        host.engine.forget()
    for host in scene.hosts:
        conversation, answer = scene.conversation(host)
        known.append((conversation, host, "device", answer["targets"][host.worker.id]["terms"]["device_tokens"]))
    for each in known:
        scene.wait_for(*each)
    scene.report.check("restart: the old one drains", scene.router.stop(), 0)
    begun = time.monotonic()
    scene.router = scene.start_router("router-again")
    for each in known:
        scene.wait_for(*each)
    seconds = time.monotonic() - begun
    scene.report.check(f"restart: as before after {seconds:.1f} s, at most {RESTART_SECONDS}", seconds <= RESTART_SECONDS)
    for conversation, host, tier, _ in known:
        answer = scene.router.explain(conversation.messages)
        turn_is_right(scene, conversation, host, answer, tier, f"restart, {tier} of {host.id}")


def gain(scene):
    """The same conversations, in turn and by cache: what is found, and how soon answers begin."""
    others = scene.start_router("round-robin", "round-robin")
    shares = {}
    for name, router in {"round-robin": others, "kv-aware": scene.router}.items():
        follow_ups = [turn for turn in have(router, name, CONVERSATIONS, TURNS) if turn.number > 0]
        shares[name] = cached_share(follow_ups)
        print(f"{name:12} cached {shares[name]:4.0%}, TTFT {mean_milliseconds(follow_ups):.0f} ms", flush=True)
    scene.report.check("gain: by cache nearly all is found", shares["kv-aware"] > 0.9)
    scene.report.check("gain: in turn it is not", shares["round-robin"] < 0.8 * shares["kv-aware"])
    scene.report.check("gain: the other router ends", others.stop(), 0)


def everything(options, cleanup, report):
    """In order."""
    scene = Scene(options, cleanup, report)
    same_answers(scene)
    follow_ups(scene)
    tiers(scene)
    engine_killed(scene)
    router_restarted(scene)
    gain(scene)
    parity = {key: n for key, n in scene.router.metrics().items() if key.startswith("infera_router_render_parity")}
    report.check("engines count tokens as the router does", set(parity.values()), {1})
    report.check("the router ends", scene.router.stop(), 0)
    report.check("the daemons end", [host.run.daemon.stop() for host in scene.hosts], [0, 0])


if __name__ == "__main__":
    program(__doc__, everything)

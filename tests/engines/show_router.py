"""The demo's third act: two real engines behind the router, and why a request goes where. Run by scripts/demo.sh.

    python3 show_router.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

Prints what came of the same conversations with workers in turn and with the router looking at caches, and three decisions.
"""

from blocks import BLOCK_TOKENS
from conversations import Conversation, cached_share, explanation, have, mean_milliseconds
from fleets import Fleet
from report import program

CONVERSATIONS, TURNS = 5, 3
POLICIES = {"workers in turn": "round-robin", "by cache": "kv-aware"}


def say(text=""):
    """A line for whoever watches."""
    print(text, flush=True)


def compared(fleet, report):
    """The same conversations by both policies: a table of the follow-ups."""
    had, hosts = {}, fleet.host_of()
    for title, policy in POLICIES.items():
        router = fleet.router if policy == "kv-aware" else fleet.start_router(policy, policy)
        turns = have(router, title, CONVERSATIONS, TURNS)
        had[title] = sorted((turn for turn in turns if turn.number > 0), key=lambda turn: (turn.conversation, turn.number))
    say(f"{CONVERSATIONS} conversations about long documents; of each the follow-up questions, and who answered them:")
    say()
    say(" " * 26 + "".join(f"{title:^34}" for title in had))
    say("conversation   prompt     " + "   engine on     cached first token" * len(had))
    for rows in zip(*had.values(), strict=True):
        cells = "".join(f"   {hosts[turn.worker]:10}{turn.cached:10}{turn.first_seconds * 1000:8.0f} ms" for turn in rows)
        say(f"{rows[0].conversation + 1:>5}, turn {rows[0].number + 1}{rows[0].prompt_tokens:9}     {cells}")
    say()
    for title, turns in had.items():
        share, first = cached_share(turns), mean_milliseconds(turns)
        say(f"{title:16} {share:4.0%} of the prompts were cached, first token after {first:.0f} ms on average")
    say("Questions come one at a time here: no queue speaks against an engine, so one may get every conversation.")
    in_turn, by_cache = (cached_share(turns) for turns in had.values())
    report.check("by cache more is found", by_cache > in_turn)


def decided(fleet, report):
    """One conversation whose blocks sink from the engine to its host's memory and on to its disk: where it goes on."""
    host = fleet.hosts[0]
    conversation = Conversation("decided")
    tokens = conversation.turn(host.engine.chat)["prompt_tokens"] - BLOCK_TOKENS
    steps = {
        "device": ("A conversation began on the engine of host-a. Where would its next question go?", lambda: None),
        "l2": ("That engine's own cache is emptied; its host's daemon still has the blocks in memory.", host.engine.forget),
        "l3": ("The daemon of host-a is killed and started again, the engine emptied: the blocks are on its disk.", host.lose_all),
    }
    for tier, (text, lose) in steps.items():
        lose()
        answer = fleet.wait_for(conversation, host, tier, tokens)
        say()
        say(text)
        say("Tokens of the prompt by where they are, and the expected milliseconds:")
        say(explanation(answer, fleet.host_of()))
        turn, worker = fleet.router.picked(lambda: conversation.turn(fleet.router.stream))
        first = turn["first_seconds"] * 1000
        say(f"Sent: answered on {fleet.host_of()[worker]}, {turn['cached']} tokens cached, first token after {first:.0f} ms")
        report.check(f"{tier}: where it was said", worker, host.worker.id)
        report.check(f"{tier}: what was said was there", turn["cached"] >= tokens)


def everything(options, cleanup, report):
    """In order."""
    say("starting etcd, two daemons, two engines (vLLM on this machine's CPU, half a minute or more), and the router")
    fleet = Fleet(options, cleanup, report)
    compared(fleet, report)
    decided(fleet, report)
    say()
    report.check("the router ends cleanly", fleet.router.stop(), 0)
    report.check("the daemons end cleanly", [host.run.daemon.stop() for host in fleet.hosts], [0, 0])


if __name__ == "__main__":
    program(__doc__, everything)

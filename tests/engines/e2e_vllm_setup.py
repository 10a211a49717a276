"""Beside other connectors, and set up wrongly: no socket, no right to it. Run by scripts/e2e-engines.sh.

    python3 e2e_vllm_setup.py --daemon BINARY --model FOLDER --folder EMPTY_FOLDER --python-path FOLDER

Whatever is wrong, the engine answers as without a connector and says why in one line. Needs root (for files of another
user) and setpriv.
"""

import os
import re

from blocks import loadable, prompt_keys
from lives import Daemon
from report import program
from runs import Run

NOBODY = 65534
DOCUMENT = "Whatever is wrong with the set-up, the engine answers. " * 10
PROMPTS = [DOCUMENT + "Q: one?", DOCUMENT + "Q: a different question?"]
AWAY = re.compile(r"WARNING.*infera-kvd.*")
# Root that is not allowed everything.
LIKE_ANYBODY = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def base(run):
    """What the engine says without us."""
    life = run.life("base", transfer=None).wait_until_ready()
    for prompt in PROMPTS:
        run.baseline[prompt] = life.generate(prompt)
    life.end()


def several(run, first):
    """`MultiConnector`'s configuration: ours and vLLM's example, which writes files; `first` is asked first."""
    example = {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(run.folder / "example")},
    }
    both = {"ours": [run.transfer(), example], "example": [example, run.transfer()]}[first]
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"connectors": both},
    }


def beside_another(run):
    """Both store; each is loaded from where it is asked first; what ours has lost comes from the other."""
    life = run.life("beside-cold", transfer=several(run, "ours")).wait_until_ready()
    for number, prompt in enumerate(PROMPTS):
        run.same(f"beside another, cold {number}", life.generate(prompt), prompt)
    life.end()
    blocks = len(prompt_keys(PROMPTS))
    run.report.check("beside another: ours has stored", run.stats()["sets_total"] >= blocks)
    for first, hits in (("ours", blocks), ("example", None)):
        before = run.stats()
        life = run.life(f"beside-{first}-first", transfer=several(run, first)).wait_until_ready()
        for number, prompt in enumerate(PROMPTS):
            answer = life.generate(prompt)
            run.same(f"beside another, {first} first, {number}", answer, prompt)
            run.report.check(f"beside another, {first} first, {number}: cached tokens", answer["cached"], loadable(prompt))
        log = life.end()
        if hits is not None:
            found = run.stats()["hits_total"] - before["hits_total"]
            run.report.check(f"beside another, {first} first: kvd's hits", found, hits)
        print(f"     {first} first: " + "; ".join(re.findall(r"infera-kvd, \w+: .*", log)))


def elsewhere(run, socket):
    """The connector on another socket."""
    transfer = run.transfer()
    transfer["kv_connector_extra_config"] = {"socket": str(socket)}
    return transfer


def wrong(run, name, **life_options):
    """An engine that cannot reach the daemon."""
    before = run.stats()
    life = run.life(name, **life_options).wait_until_ready()
    for number, prompt in enumerate(PROMPTS):
        answer = life.generate(prompt)
        run.same(f"{name} {number}", answer, prompt)
        run.report.check(f"{name} {number}: cached tokens as without us", answer["cached"], run.baseline[prompt]["cached"])
    lines = AWAY.findall(life.end())
    # One a connection: the scheduler's, and the one that would save.
    run.report.check(f"{name}: said once a connection", 1 <= len(lines) <= 2)
    print(f"     {name}: {lines[0] if lines else None}")
    run.report.check(f"{name}: the daemon was asked for nothing", run.stats()["gets_total"], before["gets_total"])


def everything(options, cleanup, report):
    """In order."""
    run = Run(options, cleanup, report)
    base(run)
    beside_another(run)

    wrong(run, "no-socket", transfer=elsewhere(run, run.folder / "nowhere.sock"))

    others = options.folder / "others"
    others.mkdir()
    daemon = Daemon(options.daemon, others, flags=("--allow-uid", str(NOBODY)))
    cleanup.callback(daemon.kill)
    wrong(run, "not-our-user", transfer=elsewhere(run, daemon.socket))
    report.check("the daemon of others ends cleanly", daemon.stop(), 0)

    # Logs are opened before the engine is less than root.
    os.chown(run.folder, NOBODY, NOBODY)
    run.folder.chmod(0o700)
    wrong(run, "not-our-folder", wrapper=LIKE_ANYBODY)
    report.check("the daemon ends cleanly", run.daemon.stop(), 0)


if __name__ == "__main__":
    program(__doc__, everything)

"""Traps at the calls of a `Daemon` that move bytes: the daemon is killed at the worst moment, an engine going on.

    KVD_TRIGGER=PATH KVD_PID_FILE=PATH

When the file KVD_TRIGGER names a moment, the process that KVD_PID_FILE names is killed there, once. A moment is a call,
`load`, `fetch` or `save`, or the time behind it, `after fetch`: what is fetched is pinned by then.
"""

import os
import pathlib
import signal


def environment(trigger, pid_file):
    """What an engine with traps has to be told."""
    return {"KVD_TRIGGER": str(trigger), "KVD_PID_FILE": str(pid_file)}


def lay(daemon):
    """At every call that moves bytes."""
    for call in ("load", "fetch", "save"):
        setattr(daemon, call, _trapped(call, getattr(daemon, call)))


def _trapped(name, call):
    def trapped(*arguments):
        _kill_at(name)
        answer = call(*arguments)
        _kill_at(f"after {name}")
        return answer

    return trapped


def _kill_at(moment):
    trigger = pathlib.Path(os.environ["KVD_TRIGGER"])
    if trigger.exists() and trigger.read_text() == moment:
        trigger.unlink()
        pid = int(pathlib.Path(os.environ["KVD_PID_FILE"]).read_text())
        os.kill(pid, signal.SIGKILL)
        print(f"MEDDLING killed {pid} at {moment}", flush=True)

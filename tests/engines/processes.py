"""Engines that are killed: every process of theirs at once, and with what they leave in memory.

An engine is started as the leader of a process group, so its children can be told from everybody else's. Not of a
session: Linux shares out the processors by sessions, and ranks that wait busily would keep a daemon of another session
from running for many seconds where there are only two of them.
"""

import contextlib
import os
import pathlib
import signal
import time

SHARED_MEMORY = "/dev/shm/"
GONE_SECONDS = 30


def members(group):
    """The ids of the living processes of a group."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # Behind the name, which may hold anything: state, parent, group.
            state, _, of_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


def shared_files(processes):
    """The files of /dev/shm that any of these processes has mapped."""
    files = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{process}/maps").read_text().splitlines():
                _, found, name = line.partition(SHARED_MEMORY)
                if found and not name.endswith(" (deleted)"):
                    files.add(pathlib.Path(SHARED_MEMORY + name))
    return files


def kill_group(leader):
    """Kills a whole group with SIGKILL and removes what it leaves in /dev/shm; which files those were."""
    processes = members(leader.pid)
    files = shared_files(processes)
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    leader.wait()
    deadline = time.monotonic() + GONE_SECONDS
    while members(leader.pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {members(leader.pid)} do not end")
        time.sleep(0.02)
    left = sorted(path for path in files if path.exists())
    for path in left:
        path.unlink()
    return left

"""Fixtures: a daemon of its own for each test, and a client on it."""

import infera_kvd
import pytest
from daemon import Daemon, remove_folder, short_folder

# A debug build on a busy machine: what is not about deadlines must not end by one.
PATIENT = 30.0


@pytest.fixture
def folder():
    """A folder whose path is short enough for sockets."""
    path = short_folder()
    yield path
    remove_folder(path)


@pytest.fixture
def start(folder):
    """Starts daemons; each is stopped at the end and must not have said anything unexpected."""
    daemons = []

    def begin(*arguments, **options):
        own = folder / str(len(daemons))
        own.mkdir()
        daemons.append(Daemon(own, *(arguments or ("--max-bytes", "64M")), **options))
        return daemons[-1]

    yield begin
    exits = [daemon.stop() if daemon.is_running() else None for daemon in daemons]
    unexpected = [line for daemon in daemons for line in daemon.unexpected()]
    assert not any(exits), exits
    assert not unexpected, "\n".join(unexpected)


@pytest.fixture
def daemon(start):
    """A small daemon with an arena."""
    return start()


@pytest.fixture
def client(daemon):
    """A client on it that waits as long as it takes."""
    with infera_kvd.Client(daemon.socket, deadline=PATIENT) as client:
        yield client


@pytest.fixture
def held(client):
    """How many leases and tickets the daemon counts for everybody, asked after all that was said before."""

    def ask():
        stats = client.stats()
        return stats["leases"], stats["tickets"]

    return ask

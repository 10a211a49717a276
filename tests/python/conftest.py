"""Fixtures: a daemon of its own for each test, and clients on it."""

import pytest
from daemon import Daemon, remove_folder, short_folder

# Enough for every test that does not bring its own figures, small enough to start at once.
SMALL = ("--max-bytes", "64M")


@pytest.fixture
def folder():
    """A folder whose path is short enough for sockets."""
    path = short_folder()
    yield path
    remove_folder(path)


@pytest.fixture
def start(folder):
    """Starts daemons with the given arguments; each is stopped and its log is read at the end."""
    daemons = []

    def begin(*arguments, **options):
        own = folder / str(len(daemons))
        own.mkdir()
        daemon = Daemon(own, *arguments, **options)
        daemons.append(daemon)
        return daemon

    yield begin
    exits = [daemon.stop() if daemon.is_running() else None for daemon in daemons]
    unexpected = [line for daemon in daemons for line in daemon.unexpected()]
    assert not any(exits), exits
    assert not unexpected, "\n".join(unexpected)


@pytest.fixture
def daemon(start):
    """A small daemon with an arena."""
    return start(*SMALL)


@pytest.fixture
def inline(daemon):
    """A client without the arena."""
    return daemon.client(shared=False)


@pytest.fixture
def arena(daemon):
    """A client with the arena."""
    client = daemon.client()
    assert client.arena is not None
    return client

"""Several threads at one daemon: each call has a connection to itself, and what went wrong in it is said of it."""

import threading

import pytest
from stand_ins import Client, Log, Unavailable

from infera_kvd.engine import daemon as daemon_module
from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.keys import Shard
from infera_kvd.engine.loader import Loader
from infera_kvd.vllm.plan import Load

WAIT_SECONDS = 60
SHARD = Shard("m", "c", 1)


class Meeting(Client):
    """A client whose calls wait for one another in `barrier`."""

    def __init__(self, barrier):
        super().__init__()
        self.barrier = barrier

    def load(self, *arguments):
        """Waits for the others."""
        self.barrier.wait(timeout=WAIT_SECONDS)
        return super().load(*arguments)


class Held(Client):
    """A client that stays in its load until it may go on."""

    def __init__(self):
        super().__init__()
        self.entered, self.may_go_on = threading.Event(), threading.Event()

    def load(self, *arguments):
        """Waits."""
        self.entered.set()
        assert self.may_go_on.wait(WAIT_SECONDS)
        return super().load(*arguments)


def load(daemon):
    """One block, which is not there."""
    return daemon.load(SHARD, [b"k"], [[bytearray(1)]])


def test_as_many_loads_go_on_at_once_as_there_are_connections():
    barrier = threading.Barrier(2)
    daemon = Daemon([Meeting(barrier), Meeting(barrier)], Counters(), Log())

    def fill(one, goes_on):
        assert load(daemon) == [0]
        return set()

    loader = Loader(fill, threads=2)
    for number in range(4):
        loader.add(Load(str(number), ((b"h", number),)))
    loaded = set()
    while len(loaded) < 4:
        loaded |= loader.take_loaded()
    loader.close()
    assert loader.take_failed_blocks() == set(), "with one at a time, none would meet another"


def test_a_connection_is_never_used_by_two_calls_at_once(monkeypatch):
    monkeypatch.setattr(daemon_module, "TURN_SECONDS", 0.01)
    client, log = Held(), Log()
    daemon = Daemon([client], Counters(), log)
    other = threading.Thread(target=load, args=[daemon])
    other.start()
    assert client.entered.wait(WAIT_SECONDS)
    assert daemon.locate([SHARD], [b"k"]) == 0
    assert client.calls == [], "it would say of one call what the other met"
    assert "every connection is waiting for it" in log.lines[0][1]
    client.may_go_on.set()
    other.join()
    assert daemon.present(SHARD, [b"k"]) == [False]
    assert [level for level, _ in log.lines] == ["warning", "info"]


def test_one_thread_uses_one_connection():
    clients = [Client(), Client()]
    daemon = Daemon(clients, Counters(), Log())
    for _ in range(5):
        load(daemon)
    assert sorted(len(client.calls) for client in clients) == [0, 5]


@pytest.mark.parametrize("fault", [Unavailable("gone"), RuntimeError("broken")])
def test_a_client_that_raises_is_used_again_and_all_are_closed(fault):
    clients = [Client(), Client()]
    daemon = Daemon(clients, Counters(), Log())
    for client in clients:
        client.fault = fault
    for _ in range(5):
        assert load(daemon) == [0]
    daemon.close()
    assert all(client.closed for client in clients)


def test_after_the_end_nothing_is_asked_and_nothing_said():
    client, log = Client(), Log()
    daemon = Daemon([client], Counters(), log)
    daemon.close()
    assert load(daemon) == [0]
    assert (client.calls, log.lines) == ([], [])

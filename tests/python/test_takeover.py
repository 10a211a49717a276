"""A planned upgrade under clients that never reconnect: the next daemon goes on with them."""

import threading
import time

import pytest
from daemon import ANSWER_SECONDS

LIVES = 4
# What was read or reported is soon free again: these clients ask faster than any engine, and nothing is to be evicted.
ROOM = ("--max-bytes", "64M", "--view-grace", "50ms", "--promise-window", "0s")
# In one read, in several, and straight into the arena.
SIZES = (0, 10, 3_000, 70_000, 300_000)


def value_of(name, size):
    """The bytes that belong to a name."""
    return (name + b".") * (size // (len(name) + 1)) + name[: size % (len(name) + 1)]


class Stream:
    """A client in the middle of its requests, on a thread of its own, until it is told to stop."""

    def __init__(self, client, name, work):
        self.rounds = 0
        self.trouble = None
        self._client = client
        self._name = name
        self._work = work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        try:
            while not self._stop.is_set():
                self._work(self._client, self._name, self.rounds)
                self.rounds += 1
        except BaseException as trouble:
            self.trouble = trouble

    def goes_on(self):
        """Waits for some more rounds."""
        until = self.rounds + 5
        deadline = time.monotonic() + ANSWER_SECONDS
        while self.rounds < until:
            assert self.trouble is None, repr(self.trouble)
            assert time.monotonic() < deadline, "it hangs"
            time.sleep(0.002)

    def end(self):
        """Stops it and says whether anything went wrong."""
        self._stop.set()
        self._thread.join(ANSWER_SECONDS)
        assert not self._thread.is_alive(), "it hangs"
        assert self.trouble is None, repr(self.trouble)


def sets_and_gets(client, own, number):
    """One value after the other through the socket, and back the way that the daemon chooses."""
    name = b"%s-%d" % (own, number % 7)
    value = value_of(name, SIZES[number % len(SIZES)])
    assert client.set(name, value) == (True, None)
    assert client.get(name).value == value
    assert client.exists([name, b"nobody"]) == [True, False]


def batches(client, own, number):
    """Several at once."""
    names = [b"%s-%d-%d" % (own, number % 3, at) for at in range(6)]
    items = [(name, value_of(name, 2_000), "short") for name in names]
    assert client.batch_set(items) == [(True, None)] * len(items)
    assert [hit.value for hit in client.batch_get(names)] == [value for _, value, _ in items]


def writes_itself(client, own, number):
    """Reserved, written through the mapping and committed, perhaps by another daemon."""
    name, size = b"%s-%d" % (own, number % 5), 40_000
    lease = client.reserve(size)
    client.write(lease, value_of(name, size))
    if number % 8 == 7:
        client.cancel(lease)
        return
    assert client.commit(lease, name, size) == (True, "")
    assert client.get(name).value == value_of(name, size)


@pytest.fixture
def begin(start, folder):
    """Starts one daemon after the other on the same sockets."""
    place = folder / "sockets"
    place.mkdir()
    options = (*ROOM, "--takeover-socket", place / "takeover.sock")
    return lambda *more: start(*options, *more, socket_path=place / "kvd.sock")


def succeed(begin, before):
    """The daemon that takes over from `before`, which ends by itself."""
    after = begin()
    assert before.process.wait(ANSWER_SECONDS) == 0
    return after


def test_clients_in_the_middle_of_their_requests_notice_nothing(begin):
    daemon = begin()
    works = [(sets_and_gets, True), (sets_and_gets, False), (batches, True), (batches, False)]
    works.append((writes_itself, True))
    streams = []
    for number, (work, shared) in enumerate(works):
        client = daemon.client(shared=shared, client_id=work.__name__)
        streams.append(Stream(client, b"own-%d" % number, work))
    server = client.server["server_id"]
    for _ in range(LIVES):
        for stream in streams:
            stream.goes_on()
        daemon = succeed(begin, daemon)
        figures = daemon.admin_stats()
        assert figures["sessions_connected"] >= len(works)
    for stream in streams:
        stream.goes_on()
    assert figures["succession"]["generation"] == LIVES + 1
    for stream in streams:
        stream.end()
    assert daemon.client().server["server_id"] == server, "leases mean what they meant"


def test_a_lease_is_committed_and_a_promise_given_by_different_daemons(begin):
    daemon = begin()
    client = daemon.client()
    leases = [client.reserve(100_000) for _ in range(3)]
    client.write(leases[0], b"first" * 20_000)
    daemon = succeed(begin, daemon)
    assert daemon.admin_stats()["held"]["tickets"] == 3
    assert client.commit(leases[0], b"first", 100_000) == (True, "")
    client.write(leases[1], b"after" * 20_000)
    daemon = succeed(begin, daemon)
    assert client.commit(leases[1], b"after", 100_000) == (True, "")
    client.cancel(leases[2])
    assert client.get(b"first").value == b"first" * 20_000
    assert client.get(b"after").value == b"after" * 20_000
    assert daemon.admin_stats()["held"]["tickets"] == 0

"""Write leases: reserve, fill in place, commit or cancel; and whose they are."""

import pathlib
import subprocess
import sys

import frames
import pytest
from kvd_v1 import Lease

HERE = pathlib.Path(__file__).resolve().parent
# Lifts the cap on what one session may hold.
ONE_MAY_TAKE_ALL = ("--in-flight-bytes-max", "64M")


def store(client, key, value, **fields):
    """One value by way of a lease."""
    lease = client.reserve(len(value))
    assert isinstance(lease, Lease), lease
    client.write(lease, value)
    return client.commit(lease, key, len(value), **fields)


def fill(client, size):
    """Leases of `size` until there are no more; the leases and the last word."""
    leases = []
    while isinstance(lease := client.reserve(size), Lease):
        leases.append(lease)
    return leases, lease


def test_publish_order_of_a_lease(arena):
    lease = arena.reserve(5000)
    version, _ = arena.header(lease.offset)
    assert version % 2 == 1
    assert lease.slot_id >= 0
    assert lease.token > 0
    assert lease.max_size >= 5000
    arena.write(lease, b"x" * 5000)
    assert arena.header(lease.offset)[0] == version
    assert arena.commit(lease, b"k", 4000) == (True, "")
    published, length = arena.header(lease.offset)
    assert published % 2 == 0
    assert published == version + 1
    assert length == 4000
    reply = arena.call("get", key=b"k")
    assert (reply["slot_offset"], reply["version"], reply["length"]) == (
        lease.offset,
        published,
        4000,
    )
    assert arena.get(b"k").value == b"x" * 4000
    assert arena.get(b"k").retention == "short"


def test_replies_have_the_fields_of_their_table(arena):
    reply = arena.call("set_reserve", size=100)
    assert list(reply) == ["op", *frames.REPLIES["set_reserve_response"]]
    assert reply["reason"] == ""
    token = reply["lease_token"]
    assert arena.call("set_commit", lease_token=token, key=b"k", length=1) == {
        "op": "set_commit_response",
        "accepted": True,
        "reason": "",
    }
    refusal = arena.call("set_reserve", size=1 << 40)
    assert list(refusal.values()) == ["set_reserve_response", 0, -1, 0, 0, "oversize"]


def test_all_the_bytes_of_a_lease_are_its_own(daemon):
    """Many leases filled to the brim beside stored values: nobody's bytes or headers change."""
    arena, inline = daemon.client(), daemon.client(shared=False)
    sizes = [1, 7, 16, 100, 4000, 65_535, 65_536, 200_000, 1 << 20]
    for number, size in enumerate(sizes):
        inline.set(b"stored %d" % number, bytes([number]) * size, retention="long")
    leases = [arena.reserve(size) for size in sizes * 3]
    spans = sorted((lease.offset - 16, lease.offset + lease.max_size) for lease in leases)
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))
    assert spans[-1][1] <= len(arena.arena)
    headers = [arena.header(lease.offset) for lease in leases]
    for number, lease in enumerate(leases):
        arena.write(lease, bytes([100 + number]) * lease.max_size)
    assert [arena.header(lease.offset) for lease in leases] == headers
    for number, (lease, size) in enumerate(zip(leases, sizes * 3, strict=True)):
        assert arena.commit(lease, b"leased %d" % number, size) == (True, "")
    for number, size in enumerate(sizes * 3):
        assert inline.get(b"leased %d" % number).value == bytes([100 + number]) * size
    for number, size in enumerate(sizes):
        assert inline.get(b"stored %d" % number).value == bytes([number]) * size


def test_a_later_lease_may_be_larger_than_the_first(arena):
    assert store(arena, b"small", b"s" * 100) == (True, "")
    assert store(arena, b"large", b"l" * (8 << 20)) == (True, "")
    assert arena.get(b"large").value == b"l" * (8 << 20)


def test_tokens_are_never_used_twice(arena):
    seen = set()
    for number in range(300):
        lease = arena.reserve(100)
        assert lease.token > 0
        assert lease.token not in seen
        seen.add(lease.token)
        if number % 2:
            arena.cancel(lease)
        else:
            arena.commit(lease, b"k", 10)


@pytest.mark.parametrize(
    ("retention", "stored"),
    [("", "short"), ("default", "short"), ("none", "none"), ("ephemeral", "ephemeral")]
    + [("short", "short"), ("long", "long")],
)
def test_retention_of_a_commit(arena, retention, stored):
    assert store(arena, b"k", b"v" * 100, retention=retention) == (True, "")
    assert arena.get(b"k").retention == stored


def test_unknown_retention_of_a_commit(arena):
    assert store(arena, b"k", b"v" * 100, retention="forever") == (False, "bad_retention")
    assert arena.get(b"k") is None


@pytest.mark.parametrize("ttl", [0, -1, -100])
def test_a_commit_without_time_to_live_lives(arena, ttl):
    assert store(arena, b"k", b"v" * 100, ttl_seconds=ttl) == (True, "")
    assert arena.get(b"k").value == b"v" * 100


@pytest.mark.parametrize("length", [-1, -(2**40), 101, 1 << 40])
def test_a_commit_of_a_wrong_length_leaves_the_lease_open(arena, length):
    lease = arena.reserve(100)
    arena.write(lease, b"v" * 100)
    assert arena.commit(lease, b"k", length) == (False, "oversize_commit")
    assert arena.get(b"k") is None
    assert arena.commit(lease, b"k", 100) == (True, "")
    assert arena.get(b"k").value == b"v" * 100


def test_a_commit_of_nothing_is_an_empty_value(arena):
    lease = arena.reserve(100)
    assert arena.commit(lease, b"k", 0) == (True, "")
    assert arena.get(b"k").value == b""


def test_unknown_and_finished_leases(arena):
    for token in (0, -1, 12_345, 1 << 62):
        assert arena.commit(token, b"k", 1) == (False, "unknown_lease")
        arena.cancel(token)
    lease = arena.reserve(100)
    assert arena.commit(lease, b"k", 1) == (True, "")
    assert arena.commit(lease, b"k", 1) == (False, "unknown_lease")
    lease = arena.reserve(100)
    arena.cancel(lease)
    assert arena.commit(lease, b"k", 1) == (False, "unknown_lease")
    assert arena.stats()["sets_total"] == 1


def test_the_lease_of_another_connection(daemon, arena):
    other = daemon.client()
    lease = arena.reserve(100)
    assert other.commit(lease, b"k", 100) == (False, "wrong_owner")
    other.cancel(lease)
    arena.write(lease, b"v" * 100)
    assert arena.commit(lease, b"k", 100) == (True, "")
    assert other.get(b"k").value == b"v" * 100


@pytest.mark.parametrize(
    ("size", "reason"),
    [(0, "arena_full_no_evictable"), (-1, "arena_full_no_evictable")]
    + [((64 << 20) + 1, "oversize"), (1 << 60, "oversize")],
)
def test_reserves_of_impossible_sizes(arena, size, reason):
    assert arena.reserve(size) == reason


def test_reserve_needs_the_arena_on_its_connection(inline):
    assert inline.reserve(100) == "no_arena"


def test_reserve_evicts_and_refuses_when_all_is_leased(start):
    daemon = start("--max-bytes", "64M", "--view-grace", "0s", *ONE_MAY_TAKE_ALL)
    arena = daemon.client()
    for number in range(100):
        arena.set(b"%d" % number, b"v" * (1 << 20), retention="short")
    leases, word = fill(arena, 1 << 20)
    assert word == "arena_full_no_evictable"
    assert len(leases) > 10
    # Everything is leased: a SET gets other memory or a reason, in bounded time, never an error.
    inline = daemon.client(shared=False)
    accepted, reason = inline.set(b"late", b"v" * (1 << 20))
    assert accepted or reason
    if accepted:
        assert inline.get(b"late").value == b"v" * (1 << 20)
    arena.cancel(leases[0])
    for lease in leases[1:]:
        arena.cancel(lease)
    assert inline.set(b"later", b"v" * (1 << 20)) == (True, None)


def test_a_commit_ignores_the_downgrade_rule(arena):
    arena.set(b"k", b"first", retention="long")
    assert store(arena, b"k", b"second", retention="short") == (True, "")
    hit = arena.get(b"k")
    assert (hit.value, hit.retention) == (b"second", "short")


def test_a_lease_overwritten_by_its_own_key(arena):
    first, second = arena.reserve(1000), arena.reserve(1000)
    arena.write(first, b"1" * 1000)
    arena.write(second, b"2" * 1000)
    assert arena.commit(first, b"k", 1000) == (True, "")
    assert arena.commit(second, b"k", 1000) == (True, "")
    assert arena.get(b"k").value == b"2" * 1000
    assert arena.stats()["entries"] == 1


def test_a_lost_connection_of_a_living_process_keeps_its_bytes_from_reuse(daemon):
    """This process lives on after its connection closed, and could still write: nobody may get those bytes."""
    leaver, other = daemon.client(), daemon.client()
    held = [leaver.reserve(1 << 20) for _ in range(8)]
    mapped = leaver.arena
    leaver.connection.close()
    accepted, reason = other.commit(held[0], b"k", 1)
    assert (accepted, reason) in ((False, "unknown_lease"), (False, "wrong_owner"))
    spans = [(lease.offset, lease.offset + lease.max_size) for lease in held]
    leases, _ = fill(other, 1 << 20)
    for lease in leases:
        other.write(lease, b"o" * lease.max_size)
    for begin, end in spans:
        mapped[begin:end] = b"!" * (end - begin)
    for lease in leases:
        begin, end = lease.offset, lease.offset + lease.max_size
        assert other.arena[begin:end] == b"o" * lease.max_size
        assert all(end <= b or e <= begin for b, e in spans)


HOLDER = """
import sys
from kvd_v1 import Client, Lease
client = Client(sys.argv[1], timeout=30)
count = 0
while isinstance(client.reserve(1 << 20), Lease):
    count += 1
print(count, flush=True)
sys.stdin.read()
"""


def test_leases_of_a_dead_process_come_back(start):
    daemon = start("--max-bytes", "16M", "--view-grace", "0s", *ONE_MAY_TAKE_ALL)
    survivor = daemon.client()

    def is_free():
        lease = survivor.reserve(1 << 20)
        if isinstance(lease, Lease):
            survivor.cancel(lease)
        return isinstance(lease, Lease)

    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(daemon.socket)],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert int(process.stdout.readline()) >= 12
            assert not is_free()
            process.kill()
            process.wait()
        # Each question is a round trip: this waits for the daemon, not for a clock.
        assert any(is_free() for _ in range(3000))


HEIR = """
import os, sys
from kvd_v1 import Client
client = Client(sys.argv[1])
lease = client.reserve(1 << 20)
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    pass
print("alone", flush=True)
sys.stdin.readline()
client.write(lease, b"h" * (1 << 20))
print(client.commit(lease, b"heir", 1 << 20), flush=True)
"""


def test_a_child_that_has_the_connection_has_its_leases(start):
    """The process that connected exits; its child goes on with the socket and the mapping."""
    daemon = start("--max-bytes", "4M", "--view-grace", "0s", *ONE_MAY_TAKE_ALL)
    other = daemon.client()
    with subprocess.Popen(
        [sys.executable, "-c", HEIR, str(daemon.socket)],
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "alone\n"
        assert process.wait() == 0
        leases, _ = fill(other, 1 << 19)
        for lease in leases:
            other.write(lease, b"o" * (1 << 19))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "(True, '')\n"
        for number, lease in enumerate(leases):
            assert other.commit(lease, b"%d" % number, 1 << 19) == (True, "")
            assert other.get(b"%d" % number).value == b"o" * (1 << 19)
    assert other.get(b"heir").value == b"h" * (1 << 20)


def test_a_process_that_gives_nothing_back_is_refused_at_last_and_alone(start):
    daemon = start("--max-bytes", "16M")
    daemon.announce("connection refused: its process closed too many sessions")
    other = subprocess.run(
        [sys.executable, "-c", LOSER, str(daemon.socket)],
        cwd=HERE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert other.stdout == "256\n"
    assert daemon.client().reserve(1).token > 0


LOSER = """
import sys, time
from daemon import admin_stats
from kvd_v1 import Client
lost = 0
try:
    for _ in range(400):
        client = Client(sys.argv[1], timeout=30)
        client.reserve(1)
        client.connection.close()
        client.arena.close()
        # Only what the daemon has seen the end of counts.
        deadline = time.monotonic() + 30
        while admin_stats(sys.argv[1])["sessions_connected"] > 0:
            assert time.monotonic() < deadline, "the daemon does not notice the close"
        lost += 1
except ConnectionError:
    pass
print(lost)
"""

"""`load` and `save`: whole batches, scattered and gathered."""

import threading

import infera_kvd
import numpy
import pytest
from infera_kvd import Lineage, Miss, Refusal

NAMES = ("model", "compat")


def blocks(count, length, seed=1):
    """So many blocks of so many bytes, all different."""
    random = numpy.random.default_rng(seed)
    return [random.integers(0, 256, length, numpy.uint8) for _ in range(count)]


@pytest.mark.parametrize(("count", "length"), [(1, 1), (3, 100_000), (2500, 1000)])
def test_a_batch_comes_back_as_it_was(client, held, count, length):
    keys = [b"%d" % number for number in range(count)]
    sources = blocks(count, length)
    assert client.save(*NAMES, keys, sources) == [None] * count
    targets = [numpy.zeros(length, numpy.uint8) for _ in keys]
    assert client.load(*NAMES, keys, targets) == [None] * count
    assert all(map(numpy.array_equal, targets, sources))
    assert held() == (0, 0)


def test_gather_and_scatter_in_order(client):
    pieces = [b"ab", bytearray(b"c"), memoryview(b"def"), numpy.arange(2, dtype=numpy.uint32), b""]
    whole = b"".join(bytes(piece) for piece in pieces)
    assert client.save(*NAMES, [b"list", b"tuple"], [pieces, tuple(pieces)]) == [None, None]
    assert client.get(*NAMES, b"list") == client.get(*NAMES, b"tuple") == whole
    parts = [bytearray(4), numpy.zeros(8, numpy.uint8), bytearray(0), bytearray(2)]
    assert client.load(*NAMES, [b"list"], [parts]) == [None]
    assert b"".join(bytes(part) for part in parts) == whole


def test_arrays_of_any_type_and_shape(client):
    source = numpy.arange(24, dtype=numpy.float16).reshape(2, 3, 4)
    target = numpy.zeros_like(source)
    assert client.save(*NAMES, [b"k"], [source]) == [None]
    assert client.load(*NAMES, [b"k"], [target]) == [None]
    assert numpy.array_equal(source, target)


def test_misses_leave_their_targets_alone(client, held):
    client.put(*NAMES, b"a", b"123")
    targets = [bytearray(b"***") for _ in range(3)]
    found = client.load(*NAMES, [b"a", b"b", b"a"], [*targets[:2], [targets[2], bytearray(1)]])
    assert found == [None, Miss("never_stored"), Miss("size_mismatch")]
    assert [bytes(target) for target in targets] == [b"123", b"***", b"***"]
    assert held() == (0, 0)


def test_lineages_and_retention_go_along(client):
    stored = client.save(
        *NAMES,
        [b"a", b"b"],
        [b"1", b"2"],
        retention="short",
        ttl=60,
        lineages=[Lineage([b"h"]), None],
        deadline=20,
    )
    assert stored == [None, None]
    assert client.stats()["lineage_bytes"] > 0


@pytest.fixture
def tight(start):
    """A client of a daemon that lets a session have 2 MiB of its 4 MiB in flight."""
    with infera_kvd.Client(start("--max-bytes", "4M").socket, deadline=30) as client:
        assert client.attach().limits["in_flight_bytes_max"] == 2 << 20
        yield client


def test_a_batch_may_be_larger_than_what_a_session_may_hold(tight):
    keys = [b"%d" % number for number in range(6)]
    sources = blocks(6, 600_000)
    assert tight.save(*NAMES, keys, sources) == [None] * 6
    targets = [numpy.zeros(600_000, numpy.uint8) for _ in keys]
    assert tight.load(*NAMES, keys, targets) == [None] * 6
    assert all(map(numpy.array_equal, targets, sources))
    assert tight.trouble is None


def test_a_batch_may_be_larger_than_the_arena(tight):
    keys = [b"%d" % number for number in range(10)]
    sources = blocks(10, 1 << 20)
    assert tight.save(*NAMES, keys, sources) == [None] * 10
    targets = [numpy.zeros(1 << 20, numpy.uint8) for _ in keys]
    found = tight.load(*NAMES, keys, targets)
    assert None in found and Miss("evicted_long") in found
    for miss, target, source in zip(found, targets, sources, strict=True):
        assert numpy.array_equal(target, source) if miss is None else not target.any()


def test_what_can_never_be_stored_is_refused_alone(tight):
    assert tight.save(*NAMES, [b"a", b"b", b"c"], [b"1", bytes(8 << 20), b"3"]) == [
        None,
        Refusal("oversize"),
        None,
    ]
    assert tight.save(*NAMES, [b"d"], [bytes(8 << 20)]) == [Refusal("oversize")]


def test_room_that_others_hold_is_waited_for(tight):
    tickets = [ticket for ticket in tight.reserve([1 << 20] * 4, deadline=0.2) if ticket]
    block = bytes(1 << 20)
    assert tight.save(*NAMES, [b"k"], [block], deadline=0.2) == [Refusal("session_limit")]
    waiter = threading.Timer(0.1, lambda: [ticket.cancel() for ticket in tickets])
    waiter.start()
    assert tight.save(*NAMES, [b"k", b"l"], [block, block]) == [None, None]
    waiter.join()


def test_counts_must_agree(client):
    for call in (client.save, client.load):
        with pytest.raises(ValueError, match="for 2 items"):
            call(*NAMES, [b"a", b"b"], [bytearray(1)])
    with pytest.raises(ValueError, match="lineages for 1 items"):
        client.save(*NAMES, [b"a"], [b"1"], lineages=[None, None])
    assert client.save(*NAMES, [], []) == client.load(*NAMES, [], []) == []

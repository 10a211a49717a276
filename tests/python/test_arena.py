"""The arena as a client sees it: headers, publish order, and bytes that stay put while somebody may be reading them."""

import threading

import frames
import pytest
from kvd_v1 import Client


def shared(client, key, **namespace):
    """The raw shared reply to a get."""
    reply = client.call("get", key=key, **namespace)
    assert reply["op"] == "get_shared_response"
    return reply


def pattern(seed, length):
    """Bytes that tell where they come from."""
    return bytes((seed * 31 + at) % 251 for at in range(min(length, 251))) * (length // 251 + 1)


def churn(client, rounds=40, size=4 << 20):
    """Writes several times the small arena, so that whatever may be reused is."""
    for number in range(rounds):
        client.set(b"churn %d" % number, bytes([number + 1]) * size, retention="long")


@pytest.mark.parametrize("size", [1, 15, 16, 17, 4000, 65_535, 65_536, 65_537, 1 << 20, 5_000_001])
def test_header_and_payload_of_a_hit(arena, size):
    value = pattern(size, size)[:size]
    assert arena.set(b"k", value, retention="long") == (True, None)
    reply = shared(arena, b"k")
    assert list(reply) == ["op", *frames.REPLIES["get_shared_response"]]
    offset = reply["slot_offset"]
    assert offset >= 16
    assert reply["length"] == size
    assert reply["retention"] == "long"
    assert reply["version"] >= 2
    assert reply["version"] % 2 == 0
    assert arena.header(offset) == (reply["version"], size)
    assert arena.arena[offset : offset + size] == value
    assert arena.get(b"k").value == value


def test_large_payloads_are_page_aligned(arena):
    for number, size in enumerate((64 << 10, 100_000, 1 << 20)):
        arena.set(b"%d" % number, b"v" * size)
        assert shared(arena, b"%d" % number)["slot_offset"] % 4096 == 0


def test_inline_and_arena_clients_read_each_others_values(daemon):
    inline, arena = daemon.client(shared=False), daemon.client()
    for size in (0, 1, 5000, 300_000):
        inline.set(b"from inline %d" % size, b"i" * size)
        arena.set(b"from arena %d" % size, b"a" * size)
        assert arena.get(b"from inline %d" % size).value == b"i" * size
        assert inline.get(b"from arena %d" % size).value == b"a" * size


def test_batch_of_references(arena):
    values = {b"%d" % number: pattern(number, 3000 + number) for number in range(64)}
    for key, value in values.items():
        arena.set(key, value, retention="long" if len(key) > 1 else "short")
    keys = [*values, b"none", b"0", b"0"]
    reply = arena.call("batch_get", keys=keys)
    assert list(reply) == ["op", *frames.REPLIES["batch_get_shared_response"]]
    assert [len(reply[name]) for name in ("offsets", "lengths", "versions", "retentions")] == [
        len(keys)
    ] * 4
    miss = keys.index(b"none")
    columns = [reply[name][miss] for name in ("offsets", "lengths", "versions", "retentions")]
    assert columns == [-1, 0, 0, None]
    for key, hit in zip(keys, arena.batch_get(keys), strict=True):
        assert (hit.value if hit else None) == values.get(key)
    for key, hit in zip(keys, arena.batch_get_view(keys), strict=True):
        assert (bytes(hit.value) if hit else None) == values.get(key)


def test_a_reply_by_reference_is_short(arena):
    arena.set(b"k" * 8, b"v" * 4000)
    arena.connection.send(frames.request("batch_get", keys=[b"k" * 8]))
    body = arena.connection.receive_body()
    assert frames.decode_reply(body)["op"] == "batch_get_shared_response"
    assert len(body) + 4 < 200


def test_a_batch_with_an_empty_hit_is_no_miss(arena):
    arena.set(b"empty", b"")
    arena.set(b"full", b"v" * 5000)
    hits = arena.batch_get([b"full", b"empty", b"none"])
    assert [hit and hit.value for hit in hits] == [b"v" * 5000, b"", None]
    assert arena.get(b"empty").value == b""
    assert arena.get(b"empty").retention == "short"


def test_bytes_handed_out_stay_until_the_next_request(daemon):
    reader, writer = daemon.client(), daemon.client(shared=False)
    value = pattern(1, 1 << 20)
    for loss in ("overwrite", "evict", "clear"):
        writer.set(b"k", value)
        reply = shared(reader, b"k")
        begin, end = reply["slot_offset"], reply["slot_offset"] + reply["length"]
        if loss == "overwrite":
            writer.set(b"k", b"other" * 10_000, retention="long")
        elif loss == "clear":
            writer.clear()
        churn(writer)
        assert reader.arena[begin:end] == value, loss
        assert reader.header(begin) == (reply["version"], len(value)), loss
        reader.stats()
        writer.clear()


def test_bytes_of_a_batch_stay_until_the_next_request(daemon):
    reader, writer = daemon.client(), daemon.client(shared=False)
    values = {b"%d" % number: pattern(number, 200_000) for number in range(20)}
    for key, value in values.items():
        writer.set(key, value)
    reply = reader.call("batch_get", keys=list(values))
    writer.clear()
    churn(writer)
    for offset, value in zip(reply["offsets"], values.values(), strict=True):
        assert reader.arena[offset : offset + len(value)] == value


def test_views_outlive_the_next_request_by_the_grace_time(start):
    daemon = start("--max-bytes", "64M", "--view-grace", "60s")
    reader, writer = daemon.client(), daemon.client(shared=False)
    value = pattern(2, 1 << 20)
    writer.set(b"k", value)
    view = reader.get_view(b"k").value
    reader.stats()
    writer.clear()
    churn(writer)
    assert bytes(view) == value
    view.release()


def test_handed_out_bytes_come_back_at_last(start):
    """What was handed out is reused once its reader went on: else the arena would fill up for good."""
    daemon = start("--max-bytes", "16M", "--view-grace", "0s")
    reader, writer = daemon.client(), daemon.client(shared=False)
    for number in range(40):
        assert writer.set(b"%d" % number, bytes([number]) * (3 << 20)) == (True, None)
        assert reader.get(b"%d" % number).value == bytes([number]) * (3 << 20)


def test_a_reader_sees_whole_values_only(daemon):
    """One key, rewritten all the time with bytes that tell its turn; readers must never see a mixture.

    The values are short, so that what the reader was given in the last second stays below its cap.
    """
    stop = threading.Event()
    writer = daemon.client(shared=False)
    length_min = 6000

    def value_of(turn):
        return bytes([turn % 251]) * (length_min + turn % 7)

    writer.set(b"k", value_of(0))

    def write():
        turn = 0
        while not stop.is_set():
            turn += 1
            writer.set(b"k", value_of(turn))

    thread = threading.Thread(target=write)
    thread.start()
    reader = daemon.client()
    try:
        versions = []
        for _ in range(1500):
            reply = shared(reader, b"k")
            begin, length = reply["slot_offset"], reply["length"]
            assert reader.header(begin) == (reply["version"], length)
            first = reader.arena[begin : begin + length]
            assert first == first[:1] * length
            assert length_min <= length < length_min + 7
            assert reader.arena[begin : begin + length] == first
            versions.append(reply["version"])
    finally:
        stop.set()
        thread.join()
    assert all(version % 2 == 0 for version in versions)
    assert len(set(versions)) > 10
    assert versions == sorted(versions)


def test_a_smallest_arena_works(start):
    daemon = start("--max-bytes", "64K", "--shared-arena-bytes", "64K")
    client = daemon.client()
    assert client.server["shared_arena"][0] == 64 << 10
    for number in range(100):
        assert client.set(b"%d" % number, bytes([number]) * 1000) == (True, None)
        assert client.get(b"%d" % number).value == bytes([number]) * 1000
    # What the first client was given in the last second counts against its share; this one has its own.
    other = daemon.client()
    lease = other.reserve(1000)
    other.write(lease, b"w" * 1000)
    assert other.commit(lease, b"leased", 1000) == (True, "")
    assert other.get(b"leased").value == b"w" * 1000
    assert other.stats()["entries"] > 10


@pytest.mark.parametrize("arena_bytes", ["0", "64K"])
def test_a_budget_of_ten_bytes_works(start, arena_bytes):
    daemon = start("--max-bytes", "10", "--shared-arena-bytes", arena_bytes)
    client = daemon.client()
    assert client.set(b"a", b"0123456789") == (True, None)
    assert client.get(b"a").value == b"0123456789"
    if arena_bytes == "0":
        assert client.set(b"b", b"0123456789x") == (False, "value_larger_than_store")
        assert client.set(b"c", b"9876543210") == (True, None)
        assert client.get(b"a") is None
        assert client.stats()["host_bytes"] == 10


def test_nobody_decides_by_what_clients_write_over_headers(daemon):
    """Headers are output: a client that scribbles over all of the arena changes bytes, never a decision."""
    vandal, inline = daemon.client(), daemon.client(shared=False)
    for number in range(50):
        inline.set(b"%d" % number, b"v" * 20_000)
    before = inline.stats()
    vandal.arena[:] = b"\xff" * len(vandal.arena)
    assert inline.stats() == before
    assert inline.exists([b"%d" % number for number in range(50)]) == [True] * 50
    assert len(inline.get(b"7").value) == 20_000
    for number in range(50):
        assert inline.set(b"%d" % number, b"w" * 30_000) == (True, None)
        assert inline.get(b"%d" % number).value == b"w" * 30_000
    lease = vandal.reserve(5000)
    vandal.write(lease, b"l" * 5000)
    assert vandal.commit(lease, b"leased", 5000) == (True, "")
    with Client(daemon.socket, timeout=30) as reader:
        assert reader.get(b"leased").value == b"l" * 5000
        assert reader.get(b"7").value == b"w" * 30_000

"""The nine figures, one by one."""

import time

import frames
from kvd_v1 import KvdError
from test_store import TEN_ROWS, fill, names, row


def moved(client, act):
    """Which figures moved while `act` ran, and by how much."""
    before = client.stats()
    act()
    after = client.stats()
    return {name: after[name] - before[name] for name in frames.STATS if after[name] != before[name]}


def test_a_fresh_daemon_has_nine_zeros_in_wire_order(inline):
    reply = inline.call("stats")
    assert list(reply) == ["op", *frames.STATS]
    assert set(inline.stats().values()) == {0}


def test_reads(inline):
    inline.set(b"k", b"v" * 10)
    inline.set(b"gone", b"v", ttl_seconds=0.01)
    time.sleep(0.03)
    assert moved(inline, lambda: inline.get(b"k")) == {"gets_total": 1, "hits_total": 1}
    assert moved(inline, lambda: inline.get(b"none")) == {"gets_total": 1, "misses_total": 1}
    expected = {"gets_total": 5, "hits_total": 2, "misses_total": 3}
    keys = [b"k", b"k", b"none", b"none", b"other"]
    assert moved(inline, lambda: inline.batch_get(keys)) == expected
    assert moved(inline, lambda: inline.exists(keys)) == {}
    assert moved(inline, lambda: inline.prefetch_hint(keys)) == {}
    seen = moved(inline, lambda: inline.get(b"gone"))
    assert (seen["gets_total"], seen["misses_total"]) == (1, 1)
    assert "hits_total" not in seen


def test_writes(inline):
    new = {"sets_total": 1, "entries": 1, "host_bytes": 10}
    assert moved(inline, lambda: inline.set(b"k", b"v" * 10, retention="long")) == new
    larger = {"sets_total": 1, "host_bytes": 5}
    assert moved(inline, lambda: inline.set(b"k", b"v" * 15, retention="long")) == larger
    counted = {"sets_total": 1}
    assert moved(inline, lambda: inline.set(b"k", b"v", retention="none")) == counted
    assert moved(inline, lambda: inline.set(b"k", b"v", ttl_seconds=0)) == counted
    items = [(b"a", b"1", "short"), (b"b", b"22", "short"), (b"k", b"v", "short")]
    three = {"sets_total": 3, "entries": 2, "host_bytes": 3}
    assert moved(inline, lambda: inline.batch_set(items)) == three

    def unknown():
        try:
            inline.set(b"k", b"v", retention="forever")
        except KvdError:
            return
        raise AssertionError("accepted")

    assert moved(inline, unknown) == {}


def test_leases(arena):
    lease = arena.reserve(1000)
    assert moved(arena, lambda: arena.commit(lease, b"k", -1)) == {}
    new = {"sets_total": 1, "entries": 1, "host_bytes": 500}
    assert moved(arena, lambda: arena.commit(lease, b"k", 500)) == new
    assert moved(arena, lambda: arena.cancel(arena.reserve(1000))) == {}
    assert moved(arena, lambda: arena.commit(lease, b"k", 500)) == {}


def test_evictions_are_rows_dropped_to_make_room(start):
    client = start(*TEN_ROWS).client()
    fill(client, names(b"a", 10), "short")
    assert moved(client, lambda: client.set(b"b", row(b"b"))) == {
        "sets_total": 1,
        "evictions_total": 1,
    }
    large = moved(client, lambda: client.set(b"c", b"v" * 30))
    assert large == {"sets_total": 1, "evictions_total": 3, "entries": -2}
    refused = {"sets_total": 1}
    assert moved(client, lambda: client.set(b"d", b"v" * 101)) == refused
    assert moved(client, lambda: client.set(b"d", row(b"d"), retention="none")) == refused
    cleared = moved(client, client.clear)
    assert cleared == {"entries": -8, "host_bytes": -100}
    client.set(b"k", row(b"k"), ttl_seconds=0.01)
    time.sleep(0.03)
    client.get(b"k")
    client.set(b"k", row(b"k"))
    client.set(b"k", row(b"l"))
    assert client.stats()["evictions_total"] == 4


def test_host_bytes_count_payload_only(arena):
    sizes = [0, 1, 15, 16, 17, 4000, 4096, 65_536, 70_001]
    for number, size in enumerate(sizes):
        arena.set(b"%d" % number, b"v" * size)
    assert arena.stats()["host_bytes"] == sum(sizes)
    assert arena.stats()["entries"] == len(sizes)
    assert arena.stats()["spillover_bytes"] == 0
    assert arena.stats()["long_bytes"] == 0


def test_an_expired_row_counts_as_an_entry_until_touched_or_swept(inline):
    inline.set(b"k", b"v" * 100, ttl_seconds=0.01)
    time.sleep(0.03)
    inline.get(b"k")
    assert inline.stats()["entries"] == 0
    assert inline.stats()["host_bytes"] == 0
    assert inline.stats()["evictions_total"] == 0


def test_figures_are_of_the_daemon_not_of_the_connection(daemon):
    first, second = daemon.client(), daemon.client(shared=False)
    first.set(b"k", b"v" * 100)
    second.get(b"k")
    assert first.stats() == second.stats() == daemon.stats()
    assert first.stats()["hits_total"] == 1


def test_a_set_with_a_bad_name_is_a_set(inline):
    for name in (
        {"key": b"k" * 257},
        {"key": b"k", "model": "m" * 1025},
        {"key": b"k", "compat_key": "c" * 1025},
    ):
        for size in (1, 200_000):
            fields = {"value": b"v" * size, **name}
            seen = moved(inline, lambda fields=fields: inline.set(**fields))
            assert seen == {"sets_total": 1}
            # Void, whatever its name.
            assert inline.set(**fields, ttl_seconds=0) == (True, None)


def refusals(daemon):
    """Refusals by reason, those that there were."""
    return {reason: count for reason, count in daemon.admin_stats()["refusals"].items() if count}


def test_a_refusal_is_counted_once_and_an_attempt_never(start):
    daemon = start("--max-bytes", "1M")
    inline = daemon.client(shared=False)
    for number in range(20):
        assert inline.set(b"%d" % number, b"v" * 100_000, retention="long") == (True, None)
    assert refusals(daemon) == {}
    assert inline.set(b"low", b"v" * 100_000) == (False, "would_displace_higher_priority")
    assert inline.set(b"0" * 257, b"v") == (False, "bad_key")
    assert inline.set(b"19", b"v" * 70_000) == (False, "retention_downgrade_not_allowed")
    assert inline.set(b"large", b"v" * (1 << 20)) == (False, "value_larger_than_store")
    words = ("bad_key", "downgrade", "higher_priority", "value_larger_than_store")
    assert refusals(daemon) == dict.fromkeys(words, 1)

"""What is kept, what is refused, and who has to go: identity, retention, eviction, lifetimes, clear."""

import time

import pytest

CLASSES = ["none", "ephemeral", "short", "long"]
# Ten rows of ten bytes. Without an arena the budget counts payload bytes and nothing else.
TEN_ROWS = ("--max-bytes", "100", "--shared-arena-bytes", "0", "--promise-window", "0s")


@pytest.fixture
def tiny(start):
    """A client of a store for a hundred bytes."""
    return start(*TEN_ROWS).client()


def row(name):
    """A value of ten bytes."""
    return name.ljust(10, b".")


def fill(client, names, retention):
    """One row of ten bytes for each of `names`."""
    for name in names:
        assert client.set(name, row(name), retention=retention) == (True, None), name


def held(client, names):
    """Those of `names` that are still there."""
    return [name for name in names if client.exists([name]) == [True]]


def names(prefix, count):
    """`count` names."""
    return [b"%s%d" % (prefix, number) for number in range(count)]


@pytest.mark.parametrize("shared", [False, True])
def test_equal_keys_in_different_namespaces_are_different_values(daemon, shared):
    client = daemon.client(shared=shared)
    places = [(m, c) for m in ("", "m", "M", "m/c") for c in ("", "c", "tp0of1_pp0of1")]
    places += [("a", "bc"), ("ab", "c"), ("abc", ""), ("", "abc")]
    for number, (model, compat_key) in enumerate(places):
        client.set(b"k", b"%d" % number * 50, model=model, compat_key=compat_key)
    for number, (model, compat_key) in enumerate(places):
        hit = client.get(b"k", model=model, compat_key=compat_key)
        assert hit.value == b"%d" % number * 50
        assert client.exists([b"k"], model=model, compat_key=compat_key) == [True]
    assert client.get(b"k", model="other") is None
    assert client.exists([b"k"], model="m", compat_key="other") == [False]
    assert client.stats()["entries"] == len(set(places))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("old", CLASSES)
@pytest.mark.parametrize("new", CLASSES)
def test_downgrade_rule(daemon, shared, old, new):
    client = daemon.client(shared=shared)
    client.set(b"k", b"old" * 100, retention=old)
    allowed = CLASSES.index(new) >= CLASSES.index(old)
    verdict = (True, None) if allowed else (False, "retention_downgrade_not_allowed")
    assert client.set(b"k", b"new" * 200, retention=new) == verdict
    hit = client.get(b"k")
    expected = (b"new" * 200, new) if allowed else (b"old" * 100, old)
    assert (hit.value, hit.retention) == expected
    assert client.stats()["host_bytes"] == len(expected[0])
    assert client.stats()["sets_total"] == 2


@pytest.mark.parametrize("shared", [False, True])
def test_the_same_key_with_a_new_size(daemon, shared):
    client = daemon.client(shared=shared)
    for size in (100, 0, 1 << 20, 1, 70_000, 4 << 20, 63, 64, 65):
        value = bytes([size % 250 + 1]) * size
        assert client.set(b"k", value) == (True, None)
        assert client.get(b"k").value == value
        assert client.stats()["host_bytes"] == size
        assert client.stats()["entries"] == 1


def test_the_oldest_goes_first(tiny):
    fill(tiny, names(b"a", 10), "short")
    fill(tiny, [b"new"], "short")
    assert held(tiny, names(b"a", 10)) == names(b"a", 10)[1:]
    assert tiny.stats()["evictions_total"] == 1
    assert tiny.stats()["host_bytes"] == 100


def test_a_get_makes_young_and_so_does_a_set(tiny):
    fill(tiny, names(b"a", 10), "short")
    tiny.get(b"a0")
    tiny.batch_get([b"a1"])
    tiny.set(b"a2", row(b"a2"), retention="short")
    fill(tiny, names(b"b", 3), "short")
    gone = [name for name in names(b"a", 10) if name not in held(tiny, names(b"a", 10))]
    assert gone == [b"a3", b"a4", b"a5"]


def test_exists_does_not_make_young(tiny):
    fill(tiny, names(b"a", 10), "short")
    assert tiny.exists([b"a0"]) == [True]
    fill(tiny, [b"new"], "short")
    assert tiny.exists([b"a0", b"a1"]) == [False, True]


def test_the_lowest_class_goes_first(tiny):
    fill(tiny, [b"long"], "long")
    fill(tiny, [b"short"], "short")
    fill(tiny, [b"ephemeral"], "ephemeral")
    fill(tiny, [b"none"], "none")
    fill(tiny, names(b"x", 6), "long")
    everyone = [b"none", b"ephemeral", b"short", b"long"]
    for left in range(1, 4):
        fill(tiny, [b"more%d" % left], "long")
        assert held(tiny, everyone) == everyone[left:]


@pytest.mark.parametrize("incoming", CLASSES[:-1])
def test_a_higher_class_is_never_displaced(tiny, incoming):
    above = CLASSES[CLASSES.index(incoming) + 1]
    fill(tiny, names(b"a", 10), above)
    refused = (False, "would_displace_higher_priority")
    assert tiny.set(b"new", row(b"new"), retention=incoming) == refused
    assert held(tiny, names(b"a", 10)) == names(b"a", 10)
    assert tiny.stats()["evictions_total"] == 0
    assert tiny.set(b"new", row(b"new"), retention=above) == (True, None)


def test_an_equal_class_is_displaced(tiny):
    for retention in CLASSES:
        fill(tiny, names(retention.encode(), 10), retention)
        fill(tiny, [b"one more"], retention)
        assert tiny.stats()["entries"] == 10


def test_a_large_row_displaces_as_many_as_it_needs(tiny):
    fill(tiny, names(b"a", 10), "short")
    assert tiny.set(b"large", b"v" * 35, retention="short") == (True, None)
    assert held(tiny, names(b"a", 10)) == names(b"a", 10)[4:]
    assert tiny.stats()["evictions_total"] == 4
    assert tiny.set(b"all", b"v" * 100, retention="short") == (True, None)
    assert tiny.stats()["entries"] == 1
    assert tiny.set(b"over", b"v" * 101, retention="long") == (False, "value_larger_than_store")
    assert tiny.get(b"all").value == b"v" * 100


def test_the_budget_holds_on_overwrite(tiny):
    fill(tiny, names(b"a", 10), "short")
    assert tiny.set(b"a9", b"v" * 30, retention="short") == (True, None)
    assert tiny.stats()["host_bytes"] <= 100
    assert tiny.get(b"a9").value == b"v" * 30


def test_a_refused_set_leaves_the_old_row(tiny):
    fill(tiny, names(b"a", 9), "long")
    fill(tiny, [b"k"], "short")
    refused = (False, "would_displace_higher_priority")
    assert tiny.set(b"k", b"v" * 20, retention="short") == refused
    assert tiny.get(b"k").value == row(b"k")


def test_the_same_rules_with_an_arena(start):
    """Recency, not arrival, decides in the arena too; and a lower class goes first."""
    daemon = start("--max-bytes", "16M", "--promise-window", "0s", "--view-grace", "0s")
    client = daemon.client()
    first = names(b"a", 12)
    for name in first:
        assert client.set(name, name[:1] * (1 << 20), retention="short") == (True, None)
    assert client.set(b"low", b"l" * (1 << 20), retention="none") == (True, None)
    client.get(b"a0")
    for name in names(b"b", 6):
        assert client.set(name, name[:1] * (1 << 20), retention="short") == (True, None)
    assert client.get(b"a0") is not None
    assert client.get(b"low") is None
    assert client.get(b"a1") is None
    assert client.get(b"a11") is not None
    for name in names(b"c", 20):
        assert client.set(name, name[:1] * (1 << 20), retention="long") == (True, None)
    assert client.set(b"d", b"d" * (1 << 20), retention="short") == (
        False,
        "would_displace_higher_priority",
    )


@pytest.mark.parametrize("shared", [False, True])
def test_a_row_expires_everywhere_alike(daemon, shared):
    client = daemon.client(shared=shared)
    client.set(b"k", b"v" * 5000, ttl_seconds=0.1)
    client.set(b"stays", b"v" * 5000, ttl_seconds=600)
    assert client.get(b"k").value == b"v" * 5000
    time.sleep(0.15)
    assert client.exists([b"k", b"stays"]) == [False, True]
    assert client.get(b"k") is None
    assert [bool(hit) for hit in client.batch_get([b"k", b"stays"])] == [False, True]
    assert client.stats()["misses_total"] == 2
    assert client.stats()["evictions_total"] == 0


def test_a_new_set_restarts_or_clears_the_lifetime(inline):
    inline.set(b"restarted", b"v", ttl_seconds=0.2)
    inline.set(b"cleared", b"v", ttl_seconds=0.2)
    time.sleep(0.15)
    inline.set(b"restarted", b"v", ttl_seconds=600)
    inline.set(b"cleared", b"v")
    time.sleep(0.15)
    assert inline.exists([b"restarted", b"cleared"]) == [True, True]


def test_reads_do_not_prolong_a_lifetime(inline):
    inline.set(b"k", b"v", ttl_seconds=0.2)
    for _ in range(5):
        inline.get(b"k")
        inline.exists([b"k"])
        time.sleep(0.05)
    assert inline.get(b"k") is None


def test_an_expired_row_yields_to_a_lower_class(inline):
    """Expired is gone: no downgrade rule protects it."""
    inline.set(b"k", b"v", retention="long", ttl_seconds=0.05)
    time.sleep(0.1)
    assert inline.set(b"k", b"w", retention="none") == (True, None)
    assert inline.get(b"k").value == b"w"


def test_lifetimes_of_a_batch(inline):
    items = [(b"a", b"1", "short"), (b"b", b"2", "short"), (b"c", b"3", "short")]
    verdicts = inline.batch_set(items, ttls_seconds=[0.05, None, 0])
    assert verdicts == [(True, None)] * 3
    assert [hit and hit.value for hit in inline.batch_get([b"a", b"b", b"c"])] == [b"1", b"2", None]
    time.sleep(0.1)
    assert inline.exists([b"a", b"b", b"c"]) == [False, True, False]


@pytest.mark.parametrize("shared", [False, True])
def test_empty_values_are_hits(daemon, shared):
    client = daemon.client(shared=shared)
    assert client.set(b"k", b"", retention="long") == (True, None)
    hit = client.get(b"k")
    assert (bytes(hit.value), hit.retention) == (b"", "long")
    assert client.exists([b"k"]) == [True]
    assert client.stats()["host_bytes"] == 0
    assert client.stats()["entries"] == 1
    assert client.stats()["hits_total"] == 1


@pytest.mark.parametrize("shared", [False, True])
def test_batches_are_as_single_calls(daemon, shared):
    client = daemon.client(shared=shared)
    items = [
        (b"a", b"first", "short"),
        (b"b", b"b", "long"),
        (b"a", b"second" * 1000, "long"),
        (b"a", b"third", "short"),
        (b"b", b"", "long"),
    ]
    verdicts = client.batch_set(items)
    refused = (False, "retention_downgrade_not_allowed")
    assert verdicts == [(True, None)] * 3 + [refused, (True, None)]
    hits = client.batch_get([b"a", b"b", b"a", b"none", b"none"])
    assert [hit and bytes(hit.value) for hit in hits] == [
        b"second" * 1000,
        b"",
        b"second" * 1000,
        None,
        None,
    ]
    stats = client.stats()
    assert (stats["sets_total"], stats["gets_total"]) == (5, 5)
    assert (stats["hits_total"], stats["misses_total"]) == (3, 2)
    assert (stats["entries"], stats["host_bytes"]) == (2, 6000)
    assert client.exists([b"a", b"none", b"b", b"a"]) == [True, False, True, True]


def test_a_batch_evicts_in_order(tiny):
    fill(tiny, names(b"a", 10), "short")
    items = [(name, row(name), "short") for name in names(b"b", 12)]
    assert tiny.batch_set(items) == [(True, None)] * 12
    assert held(tiny, names(b"b", 12)) == names(b"b", 12)[2:]
    assert tiny.stats()["evictions_total"] == 12


def stock(client):
    """Four rows in four places."""
    for model in ("", "m"):
        for compat_key in ("", "c"):
            client.set(b"k", b"v" * 100, model=model, compat_key=compat_key, retention="long")


@pytest.mark.parametrize(
    ("scope", "dropped"),
    [
        ({}, [("", ""), ("", "c"), ("m", ""), ("m", "c")]),
        ({"model": "m"}, [("m", "")]),
        ({"compat_key": "c"}, [("", "c")]),
        ({"model": "m", "compat_key": "c"}, [("m", "c")]),
        ({"model": "other"}, []),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_clear_drops_exactly_its_scope(daemon, shared, scope, dropped):
    client = daemon.client(shared=shared)
    stock(client)
    assert client.clear(**scope) == len(dropped)
    for model in ("", "m"):
        for compat_key in ("", "c"):
            there = client.exists([b"k"], model=model, compat_key=compat_key)
            assert there == [(model, compat_key) not in dropped]
    stats = client.stats()
    assert stats["entries"] == 4 - len(dropped)
    assert stats["host_bytes"] == 100 * stats["entries"]
    assert stats["evictions_total"] == 0
    assert client.clear(**scope) == 0


def test_a_chunk_of_an_engine_comes_back_byte_for_byte(start):
    """One value above 128 MiB through the socket, as an engine's connector stores it."""
    daemon = start("--max-bytes", "300M")
    inline, arena = daemon.client(shared=False), daemon.client()
    value = bytes(range(256)) * (512 << 10) + b"odd tail"
    assert inline.set(b"chunk", value, retention="long", model="m") == (True, None)
    assert inline.get(b"chunk", model="m").value == value
    assert arena.get(b"chunk", model="m").value == value
    assert arena.set(b"chunk", value[::-1], retention="long", model="m") == (True, None)
    assert inline.get(b"chunk", model="m").value == value[::-1]


@pytest.mark.parametrize("count", [1, 65_536])
def test_a_prefetch_hint_has_no_reply_and_no_effect_on_ram(daemon, count):
    client = daemon.client(shared=False)
    client.set(b"0", b"v")
    before = client.stats()
    client.prefetch_hint([b"%d" % number for number in range(count)], deadline_ms=0)
    client.prefetch_hint([b"0"], model="m", deadline_ms=-5)
    assert client.stats() == before
    assert client.exists([b"0", b"1"]) == [True, False]


def test_exists_of_many_keys(inline):
    inline.set(b"5", b"v")
    present = inline.exists([b"%d" % number for number in range(100_000)])
    assert len(present) == 100_000
    assert [number for number, there in enumerate(present) if there] == [5]


def test_a_refused_set_evicts_nothing(start):
    daemon = start("--max-bytes", "1M", "--promise-window", "0s")
    inline = daemon.client(shared=False)
    inline.set(b"kept", b"v" * 60_000, retention="long")
    number = 0
    while inline.stats()["evictions_total"] == 0:
        inline.set(b"%d" % number, b"v" * 60_000)
        number += 1
    before = inline.stats()
    for size in (60_000, 200_000):
        assert inline.set(b"kept", b"w" * size) == (False, "retention_downgrade_not_allowed")
    after = inline.stats()
    assert (after["entries"], after["evictions_total"]) == (before["entries"], 1)

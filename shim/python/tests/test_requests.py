"""Every request: what it answers, and in which shape."""

import infera_kvd
import pytest
from infera_kvd import Lineage, Located, Miss, Refusal, Ticket, View

NAMES = ("model", "compat")


def test_attach_tells_to_what(client):
    attached = client.attach()
    assert attached.server_id.startswith("kvd-") and len(attached.server_id) == 12
    assert attached.arena_bytes == 64 << 20
    assert attached.epoch > 0 and attached.session > 0
    assert set(attached.limits) == {
        "keys_max",
        "frame_bytes_max",
        "leases_max",
        "tickets_max",
        "in_flight_bytes_max",
        "value_bytes_max",
    }
    assert all(limit > 0 for limit in attached.limits.values())
    assert attached.server_id in repr(attached)


def test_put_and_get(client):
    assert client.put(*NAMES, b"key", b"value", retention="short", ttl=60) is None
    assert client.get(*NAMES, b"key") == b"value"
    assert client.get(*NAMES, b"other") == Miss("never_stored")
    assert client.get("model", "other", b"key") == Miss("other_namespace")
    assert client.put(*NAMES, b"empty", b"") is None
    assert client.get(*NAMES, b"empty") == b""
    assert client.trouble is None


def test_locate(client):
    client.put(*NAMES, b"a", b"12345")
    client.put(*NAMES, b"c", b"678")
    keys = [b"a", b"b", b"c", b"d"]
    a, b = client.locate(*NAMES, keys)
    assert (a.present, a.tier, a.nbytes, a.miss) == (True, "host", 5, None) and a
    assert (b.present, b.tier, b.nbytes, b.load_us, b.miss) == (False, None, 0, 0, "never_stored")
    assert not b
    every = client.locate(*NAMES, tuple(keys), prefix=False)
    assert [bool(one) for one in every] == [True, False, True, False]
    assert isinstance(every[0], Located) and every[1] == every[3] != every[2]
    assert client.locate(*NAMES, iter(keys)) == [a, b]
    assert client.locate(*NAMES, []) == []


def test_fetch(client):
    client.put(*NAMES, b"a", b"12345")
    client.put(*NAMES, b"c", b"678")
    keys = [b"a", b"b", b"c"]
    a, b, c = client.fetch(*NAMES, keys)
    assert isinstance(a, View) and a and a.nbytes == 5 and bytes(a) == b"12345"
    assert isinstance(b, Miss) and not b and b.reason == "never_stored"
    assert bytes(c) == b"678"
    assert len(client.fetch(*NAMES, keys, prefix=True, deadline=20)) == 2


def test_more_keys_than_a_frame_takes(client):
    keys = [b"%d" % number for number in range(10_000)]
    client.put(*NAMES, keys[7], b"x")
    located = client.locate(*NAMES, keys, prefix=False)
    assert [index for index, one in enumerate(located) if one] == [7]
    assert len(located) == len(keys)


def test_prefetch_is_a_hint_without_an_answer(client):
    client.put(*NAMES, b"a", b"12345")
    assert client.prefetch(*NAMES, [b"a", b"b"]) is None
    assert client.prefetch(*NAMES, (b"%d" % number for number in range(10_000)), deadline=60) is None
    assert client.prefetch(*NAMES, []) is None
    assert client.trouble is None and client.get(*NAMES, b"a") == b"12345"
    with pytest.raises(TypeError):
        client.prefetch(*NAMES, b"a")
    with pytest.raises(ValueError):
        client.prefetch(*NAMES, [b"a"], deadline=-1)


def test_reserve_write_commit(client):
    one, two = client.reserve([5, 3], retention="ephemeral", deadline=20)
    assert isinstance(one, Ticket) and one and one.nbytes == 5
    one.write(b"hello")
    two.write(b"b", 1)
    two.write(bytearray(b"a"))
    two.write(memoryview(b"c"), offset=2)
    lineage = Lineage([b"h" * 32], [7], b"p" * 32, 16, "lora", "salt")
    stored = client.commit(
        *NAMES,
        [(one, b"1"), (two, b"2")],
        lengths=[4, 3],
        retention="ephemeral",
        ttl=60.0,
        lineages=[lineage, None],
    )
    assert stored == [None, None]
    assert client.get(*NAMES, b"1") == b"hell"
    assert client.get(*NAMES, b"2") == b"abc"
    assert client.stats()["lineage_bytes"] > 0


def test_refusals_are_falsy_values(client):
    (refusal,) = client.reserve([1 << 40])
    assert isinstance(refusal, Refusal) and not refusal
    assert refusal.reason in ("oversize", "value_larger_than_store")
    (ticket,) = client.reserve([4])
    assert client.commit(*NAMES, [(ticket, b"o")], lengths=[5]) == [Refusal("oversize_commit")]
    assert client.trouble is None, "an answer is no trouble"


def test_ttl_ends_a_block(client):
    assert client.put(*NAMES, b"k", b"v", ttl=0.001) is None
    while (found := client.get(*NAMES, b"k")) == b"v":
        pass
    assert found == Miss("expired")


def test_clear(client):
    for model in ("m", "n"):
        for compat in ("x", "y"):
            client.put(model, compat, b"k", b"v")
    assert client.clear(model="m", compat_key="x") == 1
    assert client.clear(model="m") == 1
    assert client.get("m", "x", b"k") == Miss("cleared")
    assert client.clear(everything=True) == 2
    assert client.clear(everything=True) == 0


def test_stats(client):
    client.put(*NAMES, b"k", b"v")
    client.get(*NAMES, b"k")
    stats = client.stats()
    assert stats["entries"] == 1 and stats["hits_total"] == 1
    assert all(isinstance(name, str) and isinstance(value, int) for name, value in stats.items())


def test_plain_values():
    assert Miss("a") == Miss("a") != Miss("b") and len({Miss("a"), Miss("a")}) == 1
    assert Refusal("a") == Refusal("a") != Refusal("b") and len({Refusal("a"), Refusal("a")}) == 1
    assert Miss("a") != Refusal("a")
    lineage = Lineage([b"a", b"b"], router_hashes=[2**64 - 1], tokens_per_block=16)
    assert lineage.engine_hashes == [b"a", b"b"] and lineage.router_hashes == [2**64 - 1]
    assert lineage.parent is None and lineage.lora is None and lineage.salt is None
    assert lineage == Lineage([b"a", b"b"], [2**64 - 1], None, 16) != Lineage([])
    assert infera_kvd.__version__.count(".") == 2


def test_everything_has_a_docstring():
    for name in infera_kvd.__all__:
        thing = getattr(infera_kvd, name)
        assert thing.__doc__, name
        for method in ("locate", "fetch", "load", "save", "commit", "copy_to", "write", "release"):
            assert getattr(thing, method, thing).__doc__, (name, method)


@pytest.mark.parametrize("name", ["Attached", "Located", "View", "Ticket"])
def test_what_only_the_daemon_gives_cannot_be_made(name):
    with pytest.raises(TypeError):
        getattr(infera_kvd, name)()

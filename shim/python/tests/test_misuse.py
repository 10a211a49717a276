"""Wrong arguments raise what Python programs expect, and nothing is sent."""

import infera_kvd
import pytest

NAMES = ("model", "compat")


@pytest.fixture
def offline(folder):
    """A client without a daemon: whatever reached it would be answered by misses."""
    return infera_kvd.Client(folder / "nothing.sock")


@pytest.mark.parametrize("keys", [b"key", "key", [1], ["key"], [bytearray(b"key")], 7, None])
def test_keys_are_bytes(offline, keys):
    for call in (
        lambda: offline.locate(*NAMES, keys),
        lambda: offline.fetch(*NAMES, keys),
        lambda: offline.load(*NAMES, keys, [bytearray(1)]),
        lambda: offline.save(*NAMES, keys, [b"1"]),
    ):
        with pytest.raises(TypeError):
            call()


def test_names_and_keys_have_limits(client):
    assert client.put("m" * 1024, "c" * 1024, b"k" * 256, b"v") is None
    for model, compat, key in (("m" * 1025, "c", b"k"), ("m", "c" * 1025, b"k"), ("m", "c", b"k" * 257)):
        for call in (
            lambda names=(model, compat), key=key: client.locate(*names, [key]),
            lambda names=(model, compat), key=key: client.fetch(*names, [key]),
            lambda names=(model, compat), key=key: client.get(*names, key),
            lambda names=(model, compat), key=key: client.put(*names, key, b"v"),
            lambda names=(model, compat), key=key: client.load(*names, [key], [bytearray(1)]),
            lambda names=(model, compat), key=key: client.save(*names, [key], [b"v"]),
        ):
            with pytest.raises(ValueError, match="allowed are"):
                call()
    assert client.stats()["leases"] == client.stats()["tickets"] == 0


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan")])
def test_seconds_are_not_negative(offline, seconds):
    for call in (
        lambda: infera_kvd.Client(deadline=seconds),
        lambda: offline.fetch(*NAMES, [b"k"], deadline=seconds),
        lambda: offline.reserve([1], deadline=seconds),
        lambda: offline.put(*NAMES, b"k", b"v", ttl=seconds),
        lambda: offline.save(*NAMES, [b"k"], [b"v"], deadline=seconds),
        lambda: offline.load(*NAMES, [b"k"], [bytearray(1)], deadline=seconds),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError):
        offline.put(*NAMES, b"k", b"v", ttl=0)


def test_an_infinite_time_is_none_at_all(client):
    assert client.put(*NAMES, b"k", b"v", ttl=float("inf")) is None
    assert client.fetch(*NAMES, [b"k"], deadline=float("inf"))[0].nbytes == 1


def test_other_arguments(offline):
    for call in (
        lambda: offline.reserve([1], retention="Long"),
        lambda: offline.put(*NAMES, b"k", b"v", retention=""),
        lambda: offline.clear(),
        lambda: offline.clear(compat_key="c"),
        lambda: offline.clear(model="m", everything=True),
        lambda: offline.commit(*NAMES, [], lengths=[1]),
        lambda: offline.commit(*NAMES, [], lineages=[None]),
    ):
        with pytest.raises(ValueError):
            call()
    for call in (
        lambda: offline.reserve([-1]),
        lambda: offline.reserve([2**64]),
        lambda: infera_kvd.Lineage([], [-1]),
        lambda: infera_kvd.Lineage([], tokens_per_block=2**32),
    ):
        with pytest.raises(OverflowError):
            call()
    for call in (
        lambda: offline.put(*NAMES, b"k", "text"),
        lambda: offline.put(*NAMES, b"k", None),
        lambda: offline.put(None, "c", b"k", b"v"),
        lambda: offline.commit(*NAMES, [b"k"]),
        lambda: offline.commit(*NAMES, [(b"k", b"k")]),
        lambda: offline.commit(*NAMES, [], lineages=[b"x"]),
        lambda: offline.locate(*NAMES, [b"k"], True),
        lambda: infera_kvd.Client("a", "b"),
        lambda: infera_kvd.Client(7),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(UnicodeEncodeError):
        offline.get("\ud800", "c", b"k")
    with pytest.raises(BufferError):
        offline.load(*NAMES, [b"k"], [b"read-only"])


def test_a_lineage_has_a_limit_and_its_ticket_goes_back(client, held):
    lineage = infera_kvd.Lineage([b"h" * 32] * 3000)
    (ticket,) = client.reserve([1])
    with pytest.raises(ValueError, match="lineage"):
        client.commit(*NAMES, [(ticket, b"k")], lineages=[lineage])
    with pytest.raises(ValueError, match="lineage"):
        client.save(*NAMES, [b"k"], [b"v"], lineages=[lineage])
    assert held() == (0, 0)


def test_a_closed_client_says_so(client):
    client.close()
    client.close()
    assert "closed" in repr(client)
    for call in (
        client.attach,
        client.stats,
        lambda: client.get(*NAMES, b"k"),
        lambda: client.reserve([1]),
        lambda: client.save(*NAMES, [b"k"], [b"v"]),
    ):
        with pytest.raises(infera_kvd.KvdError) as raised:
            call()
        assert raised.value.code == "closed"


def test_the_socket_is_found_in_the_environment(daemon, monkeypatch, folder):
    monkeypatch.setenv("INFERA_KVD_SOCKET", str(daemon.socket))
    assert infera_kvd.Client(deadline=30).attach().arena_bytes > 0
    assert str(folder) in repr(infera_kvd.Client(folder / "given.sock")), "what is given counts"
    monkeypatch.delenv("INFERA_KVD_SOCKET")
    assert "/var/run/infera-kvd.sock" in repr(infera_kvd.Client())

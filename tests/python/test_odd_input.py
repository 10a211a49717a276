"""Odd but well-formed input: the answer is an error or a reason, the connection stays, nothing else changes."""

import json

import frames
import pytest
from kvd_v1 import KvdError
from test_framing import SMALLEST
from test_golden import FRAMES, value_of

REPLY_FRAMES = [name for name, golden in FRAMES.items() if golden["from"] == "daemon"]


def error_code(client, frame):
    """The code of the `error` reply to `frame`; the connection must still answer afterwards."""
    with pytest.raises(KvdError) as caught:
        client.exchange(frame)
    client.stats()
    return caught.value.code


@pytest.mark.parametrize("name", REPLY_FRAMES)
def test_reply_op_from_a_client_is_bad_op(inline, name):
    assert error_code(inline, bytes.fromhex(FRAMES[name]["hex"])) == "bad_op"


WRONG = [
    ("hello", "client_id", 5),
    ("hello", "client_id", None),
    ("hello", "protocol_version", "one"),
    ("get", "key", 5),
    ("get", "key", None),
    ("get", "key", ["k"]),
    ("get", "key", "text"),
    ("get", "model", 5),
    ("get", "compat_key", b"bytes"),
    ("batch_get", "keys", b"k"),
    ("batch_get", "keys", None),
    ("batch_get", "keys", [b"k", 5]),
    ("batch_get", "keys", {"a": b"k"}),
    ("batch_get", "model", None),
    ("set", "key", 5),
    ("set", "key", "text"),
    ("set", "value", 5),
    ("set", "value", "text"),
    ("set", "value", None),
    ("set", "value", [b"v"]),
    ("set", "retention", 100),
    ("set", "retention", None),
    ("set", "retention", b"long"),
    ("set", "retention", "forever"),
    ("set", "retention", ""),
    ("set", "retention", "default"),
    ("set", "model", 5),
    ("set", "compat_key", ["c"]),
    ("set", "metadata", 5),
    ("set", "metadata", [1]),
    ("set", "ttl_seconds", "60"),
    ("set", "ttl_seconds", [60]),
    ("batch_set", "keys", b"k"),
    ("batch_set", "keys", [5]),
    ("batch_set", "values", [5]),
    ("batch_set", "values", [None]),
    ("batch_set", "retentions", ["forever"]),
    ("batch_set", "retentions", [5]),
    ("batch_set", "metadatas", [5]),
    ("batch_set", "ttls_seconds", ["60"]),
    ("batch_set", "ttls_seconds", 60),
    ("set_reserve", "size", "4096"),
    ("set_reserve", "size", None),
    ("set_commit", "lease_token", "1"),
    ("set_commit", "key", 5),
    ("set_commit", "length", "1"),
    ("set_commit", "model", 5),
    ("set_cancel", "lease_token", "1"),
    ("exists", "keys", b"k"),
    ("exists", "keys", [5]),
    ("exists", "model", 5),
    ("clear", "model", 5),
    ("clear", "compat_key", 5),
]


@pytest.mark.parametrize(("op", "field", "value"), WRONG)
def test_wrong_type_is_an_internal_error_and_changes_nothing(daemon, inline, op, field, value):
    inline.set(b"kept", b"value", retention="long")
    before = daemon.stats()
    frame = frames.encode({"op": op, **SMALLEST[op], field: value})
    assert error_code(inline, frame) == "internal_error"
    assert daemon.stats() == before
    assert inline.get(b"kept").value == b"value"


@pytest.mark.parametrize(
    ("field", "value"), [("keys", 5), ("keys", [5]), ("model", 5), ("deadline_ms", "soon")]
)
def test_a_prefetch_hint_is_never_answered_whatever_it_says(inline, field, value):
    inline.connection.send(
        frames.encode({"op": "prefetch_hint", **SMALLEST["prefetch_hint"], field: value})
    )
    assert "entries" in inline.stats()


def test_error_messages_are_short(inline):
    with pytest.raises(KvdError) as caught:
        inline.set(b"k", b"v", retention="x" * 10_000)
    assert len(str(caught.value)) <= 200 + len("internal_error: ")


@pytest.mark.parametrize("field", ["keys", "values", "retentions", "metadatas", "ttls_seconds"])
def test_batch_set_of_unequal_arrays(daemon, inline, field):
    fields = {
        "keys": [b"a", b"b"],
        "values": [b"1", b"2"],
        "retentions": ["short", "short"],
        "metadatas": [{}, {}],
        "ttls_seconds": [None, None],
    }
    fields[field] = fields[field][:1]
    frame = frames.encode({"op": "batch_set", **fields})
    assert error_code(inline, frame) == "batch_set_arity_mismatch"
    assert daemon.stats()["entries"] == 0


@pytest.mark.parametrize(
    ("values", "retentions"),
    [([b"1", b"2", b"3"], ["short", "forever", "short"]), ([b"1", b"2", None], ["short"] * 3)],
)
def test_batch_set_with_one_bad_item_stores_nothing(daemon, inline, values, retentions):
    frame = frames.encode(
        {
            "op": "batch_set",
            "keys": [b"a", b"b", b"c"],
            "values": values,
            "retentions": retentions,
            "metadatas": [{}] * 3,
        }
    )
    assert error_code(inline, frame) == "internal_error"
    assert daemon.stats()["entries"] == 0
    assert inline.exists([b"a", b"b", b"c"]) == [False] * 3


@pytest.mark.parametrize("shared", [False, True])
def test_empty_arrays_are_answered_with_empty_arrays(daemon, shared):
    client = daemon.client(shared=shared)
    assert client.batch_get([]) == []
    assert client.batch_get_view([]) == []
    assert client.exists([]) == []
    assert client.batch_set([]) == []
    client.prefetch_hint([])
    assert client.stats() == daemon.stats()


def test_a_first_frame_that_is_no_hello_is_served_without_arena(daemon):
    client = daemon.client(hello=False)
    assert client.stats()["entries"] == 0
    assert client.set(b"k", b"v" * 5000) == (True, None)
    assert client.call("get", key=b"k")["op"] == "get_response"
    assert client.call("batch_get", keys=[b"k"])["op"] == "batch_get_response"
    assert client.reserve(10) == "no_arena"


@pytest.mark.parametrize(("asked", "acked"), [(-5, 1), (0, 1), (1, 1), (2, 2), (3, 2), (10**9, 2)])
def test_protocol_version_is_the_lesser_of_both(daemon, asked, acked):
    connection = daemon.connection()
    connection.send(frames.request("hello", client_id="c", protocol_version=asked))
    reply = frames.decode(connection.receive_body())
    assert reply["op"] == "hello_ack"
    assert reply["protocol_version"] == acked


def test_second_hello_changes_nothing(daemon, arena):
    arena.set(b"k", b"v" * 5000)
    again = arena.call("hello", client_id="again", prefers_shared_arena=True)
    assert again["shared_arena"] is None
    # No descriptor follows: the next byte belongs to the next reply. And the arena stays in use.
    assert arena.call("get", key=b"k")["op"] == "get_shared_response"
    inline = daemon.client(shared=False)
    again = inline.call("hello", client_id="again", prefers_shared_arena=True)
    assert again["shared_arena"] is None
    assert inline.call("get", key=b"k")["op"] == "get_response"


@pytest.mark.parametrize("ttl", [0, -1, -0.5, 0.0])
def test_set_with_no_time_to_live_is_counted_and_not_stored(inline, ttl):
    assert inline.set(b"new", b"v", ttl_seconds=ttl) == (True, None)
    assert inline.get(b"new") is None
    inline.set(b"old", b"before", retention="short")
    assert inline.set(b"old", b"after", retention="long", ttl_seconds=ttl) == (True, None)
    hit = inline.get(b"old")
    assert (hit.value, hit.retention) == (b"before", "short")
    assert inline.stats()["sets_total"] == 3
    assert inline.stats()["entries"] == 1


def test_any_map_is_accepted_as_metadata_and_never_returned(inline):
    metadata = {"a": 1, "b": [b"x", None, {"c": 1.5}], "": {}, "long": "x" * 70_000}
    assert inline.set(b"k", b"v", metadata=metadata) == (True, None)
    reply = inline.call("get", key=b"k")
    assert set(reply) == {"op", "value", "retention"}


def test_an_inline_reply_above_four_gibibytes_is_an_error(start):
    daemon = start("--max-bytes", "64M")
    client = daemon.client(shared=False)
    client.set(b"k", b"v" * (16 << 20))
    assert error_code(client, frames.request("batch_get", keys=[b"k"] * 257)) == "internal_error"
    assert len(client.get(b"k").value) == 16 << 20


def test_a_value_larger_than_the_store_is_drained(start):
    daemon = start("--max-bytes", "1M")
    client = daemon.client(shared=False)
    assert client.set(b"k", b"v" * (4 << 20)) == (False, "value_larger_than_store")
    assert client.set(b"k", b"v") == (True, None)
    assert client.get(b"k").value == b"v"
    assert client.batch_set([(b"a", b"v" * (4 << 20), "long"), (b"b", b"v", "long")]) == [
        (False, "value_larger_than_store"),
        (True, None),
    ]


def test_keys_of_odd_lengths(inline):
    for key in (b"", b"\0", b"\0\0", bytes(range(256))):
        assert inline.set(key, b"value of " + key) == (True, None)
    for key in (b"", b"\0", b"\0\0", bytes(range(256))):
        assert inline.get(key).value == b"value of " + key
    assert inline.stats()["entries"] == 4


def test_golden_requests_are_all_understood(daemon):
    """Each recorded request gets the reply that its op promises, in one session."""
    client = daemon.client(shared=False)
    for name, golden in FRAMES.items():
        message = value_of(golden["fields"])
        if golden["from"] != "client":
            continue
        if message["op"] == "prefetch_hint":
            client.connection.send(bytes.fromhex(golden["hex"]))
            continue
        reply = client.exchange(bytes.fromhex(golden["hex"]))
        assert reply["op"] in frames.REPLIES, json.dumps(name)

"""Odd input on a connection that chose protocol 2: an error with a stable code first, and most sessions live."""

import struct

import frames
import pytest
from test_framing import BROKEN

UNKNOWN = ("unknown op", "an op of protocol 2")


def greet(daemon):
    """A connection that speaks protocol 2."""
    connection = daemon.connection()
    connection.send(frames.request("hello", client_id="c", protocol_version=2))
    ack = frames.decode(connection.receive_body())
    assert (ack["op"], ack["protocol_version"]) == ("hello_ack", 2)
    return connection


def error(connection):
    """The code of the error that comes next."""
    reply = frames.decode(connection.receive_body())
    assert reply["op"] == "error"
    assert reply["message"]
    return reply["code"]


def expect_closed(connection):
    """The next thing is the end."""
    try:
        assert connection.socket.recv(1) == b""
    except ConnectionResetError:
        pass


def expect_open(connection):
    """The session still answers."""
    connection.send(frames.encode({"op": "stats", "id": 9}))
    reply = frames.decode(connection.receive_body())
    assert (reply["op"], reply["id"]) == ("stats_reply", 9)


# These are broken by what protocol 1 knows of their op; the others are no messages at all.
TYPED = [name for name in BROKEN if "metadata" in name]


@pytest.mark.parametrize("name", [n for n in BROKEN if n not in UNKNOWN and n not in TYPED])
def test_what_is_no_message_gets_bad_frame_and_the_end(daemon, name):
    connection = greet(daemon)
    connection.send(BROKEN[name])
    assert error(connection) == "bad_frame"
    expect_closed(connection)
    daemon.stats()


@pytest.mark.parametrize("op", ["get_all", "set", "get", "exists", "batch_get", "prefetch_hint"])
def test_an_unknown_op_gets_an_error_and_the_session_lives(daemon, op):
    connection = greet(daemon)
    connection.send(frames.encode({"op": op, "id": 1}))
    assert error(connection) == "unknown_op"
    expect_open(connection)


@pytest.mark.parametrize(
    "message",
    [
        {"op": "locate"},
        {"op": "locate", "id": "one"},
        {"op": "stats"},
        {"op": "stats", "id": -1},
        {"op": "reserve", "id": 1, "retention": "forever", "lens": struct.pack("<Q", 1)},
        {"op": "reserve", "id": 1, "retention": "long", "lens": b"odd"},
        {"op": "cancel", "id": 1, "epoch": 1, "tickets": [1]},
        {
            "op": "locate",
            "id": 1,
            "model": "m",
            "compat_key": "c",
            "key_lens": struct.pack("<H", 5),
            "keys": b"four",
            "prefix": False,
        },
    ],
)
def test_a_bad_field_gets_an_error_and_the_session_lives(daemon, message):
    connection = greet(daemon)
    connection.send(frames.encode(message))
    assert error(connection) == "bad_field"
    expect_open(connection)


def test_unknown_fields_are_ignored(daemon):
    connection = greet(daemon)
    connection.send(frames.encode({"op": "stats", "id": 9, "later": {"a": [1]}}))
    assert frames.decode(connection.receive_body())["id"] == 9


@pytest.mark.parametrize("length", [(16 << 20) + 1, 1 << 31, 0xFFFF_FFFF])
def test_a_length_above_the_limit_gets_an_error_and_the_end(daemon, length):
    connection = greet(daemon)
    connection.send(struct.pack(">I", length))
    assert error(connection) == "frame_too_large"
    expect_closed(connection)
    daemon.stats()


def test_answers_of_pipelined_requests_carry_their_ids(daemon):
    connection = greet(daemon)
    connection.send(b"".join(frames.encode({"op": "stats", "id": n}) for n in range(100)))
    ids = [frames.decode(connection.receive_body())["id"] for _ in range(100)]
    assert sorted(ids) == list(range(100))

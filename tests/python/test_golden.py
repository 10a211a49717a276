"""The test client itself, held against frames that were recorded from the reference: byte for byte, both ways."""

import json
import pathlib
import socket
import threading

import frames
import pytest
from kvd_v1 import Client, KvdError

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "kvd/proto/tests/golden/v1.json"
FRAMES = json.loads(GOLDEN.read_text())["frames"]
NAMESPACE = {"model": "m", "compat_key": "tp0of1_pp0of1"}


def value_of(field):
    """A field as Python sees it: {"bin": hex} stands for bytes."""
    if isinstance(field, dict) and set(field) == {"bin"}:
        return bytes.fromhex(field["bin"])
    if isinstance(field, dict):
        return {name: value_of(inner) for name, inner in field.items()}
    return [value_of(inner) for inner in field] if isinstance(field, list) else field


@pytest.mark.parametrize("name", FRAMES)
def test_golden_frame_both_ways(name):
    golden = FRAMES[name]
    message = value_of(golden["fields"])
    wire = bytes.fromhex(golden["hex"])
    assert frames.encode(message) == wire
    assert list(frames.decode(wire[4:]).items()) == list(message.items())
    if golden["from"] == "daemon":
        assert frames.decode_reply(wire[4:]) == message
    else:
        fields = dict(message)
        assert frames.request(fields.pop("op"), **fields) == wire


def test_every_message_has_a_golden_frame():
    seen = {value_of(golden["fields"])["op"] for golden in FRAMES.values()}
    assert seen == set(frames.REQUESTS) | set(frames.REPLIES)


# What the client is asked, the frame it must send, the reply it gets, and what it must make of it.
KEY = b"kkkkkkkk"
CALLS = [
    (lambda c: c.get(bytes(range(8)), **NAMESPACE).value, "get", "get_response_hit", b"hello"),
    (lambda c: c.get(bytes(range(8)), **NAMESPACE), "get", "get_response_miss", None),
    # Without an arena a shared reply is a miss.
    (lambda c: c.get(bytes(range(8)), **NAMESPACE), "get", "get_shared_response", None),
    (
        lambda c: [hit and hit.value for hit in c.batch_get([b"a" * 8, b"b" * 8])],
        "batch_get",
        "batch_get_response",
        [b"x", None],
    ),
    (
        lambda c: c.batch_get([b"a" * 8, b"b" * 8]),
        "batch_get",
        "batch_get_shared_response",
        [None, None],
    ),
    (lambda c: c.set(KEY, b"vvvv"), "set_default", "set_ack", (True, None)),
    (
        lambda c: c.set(
            KEY,
            b"vvvv",
            retention="long",
            model="m",
            compat_key="c",
            metadata={"a": 1},
            ttl_seconds=1.5,
        ),
        "set",
        "set_ack_reject",
        (False, "would_displace_higher_priority"),
    ),
    (lambda c: c.reserve(65536), "set_reserve", "set_reserve_reject", "no_arena"),
    (lambda c: c.reserve(65536).offset, "set_reserve", "set_reserve_response", 208),
    (lambda c: c.commit(1, KEY, 10), "set_commit", "set_commit_response", (True, "")),
    (lambda c: c.cancel(1), "set_cancel", "set_cancel_response", None),
    (lambda c: c.exists([KEY]), "exists", "exists_response", [True, False]),
    (lambda c: c.clear(), "clear", "clear_ack", 3),
    (lambda c: list(c.stats().values()), "stats", "stats_response", list(range(1, 10))),
]


@pytest.mark.parametrize(("ask", "sent", "reply", "expected"), CALLS)
def test_client_sends_and_reads_golden_frames(folder, ask, sent, reply, expected):
    seen = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()

        def answer():
            with listener.accept()[0] as peer:
                seen.append(peer.recv(1 << 16))
                peer.sendall(bytes.fromhex(FRAMES[reply]["hex"]))

        thread = threading.Thread(target=answer)
        thread.start()
        with Client(folder / "s", hello=False, timeout=10) as client:
            assert ask(client) == expected
        thread.join()
    assert seen == [bytes.fromhex(FRAMES[sent]["hex"])]


def test_client_dies_of_an_unlisted_field_and_reports_errors():
    with pytest.raises(ValueError, match="fields"):
        frames.decode_reply(frames.encode({"op": "set_cancel_response", "extra": 1})[4:])
    with pytest.raises(ValueError, match="fields"):
        frames.decode_reply(frames.encode({"op": "clear_ack"})[4:])
    with pytest.raises(ValueError, match="unknown reply"):
        frames.decode_reply(frames.encode({"op": "get"})[4:])
    assert KvdError("bad_op", "x").code == "bad_op"

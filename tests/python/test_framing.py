"""Framing: what closes a connection, what does not, and that the daemon shrugs at both."""

import contextlib
import struct
import threading

import frames
import msgpack
import pytest
from kvd_v1 import KvdError

# The smallest body of each request, and its required fields.
SMALLEST = {
    "hello": {"client_id": "c"},
    "get": {"key": b"k"},
    "batch_get": {"keys": [b"k"]},
    "set": {"key": b"k", "value": b"v"},
    "batch_set": {"keys": [b"k"], "values": [b"v"], "retentions": ["short"], "metadatas": [{}]},
    "set_reserve": {"size": 1},
    "set_commit": {"lease_token": 1, "key": b"k", "length": 1},
    "set_cancel": {"lease_token": 1},
    "prefetch_hint": {"keys": [b"k"]},
    "exists": {"keys": [b"k"]},
    "clear": {},
    "stats": {},
}
REPLY_TO = {
    "hello": {"hello_ack"},
    "get": {"get_response"},
    "batch_get": {"batch_get_response"},
    "set": {"set_ack"},
    "batch_set": {"batch_set_ack"},
    "set_reserve": {"set_reserve_response"},
    "set_commit": {"set_commit_response"},
    "set_cancel": {"set_cancel_response"},
    "exists": {"exists_response"},
    "clear": {"clear_ack"},
    "stats": {"stats_response"},
}


def expect_closed(connection):
    """The next thing on `connection` is its end, with no byte before it."""
    try:
        assert connection.socket.recv(1 << 16) == b""
    except ConnectionResetError:
        # The daemon closed with bytes of ours unread.
        pass


def expect_alive(daemon, connection):
    """`connection` still answers, and so does a new one."""
    connection.send(frames.request("stats"))
    assert frames.decode_reply(connection.receive_body())["op"] == "stats_response"
    daemon.stats()


def raw(*items):
    """A msgpack map from pairs of encoded keys and values."""
    body = bytes([0x80 | len(items)])
    return frames.frame(body + b"".join(key + value for key, value in items))


OP = msgpack.packb("op")
GET = msgpack.packb("get")
KEY = (msgpack.packb("key"), msgpack.packb(b"k"))
BROKEN = {
    "empty": frames.frame(b""),
    "reserved marker": frames.frame(b"\xc1"),
    "cut short": frames.frame(frames.request("get", key=b"k")[4:-1]),
    "trailing byte": frames.frame(frames.request("stats")[4:] + b"\xc0"),
    "trailing map": frames.frame(frames.request("stats")[4:] * 2),
    "array": frames.encode(["op", "stats"]),
    "text": frames.encode("stats"),
    "number": frames.encode(7),
    "no op": frames.encode({"key": b"k"}),
    "empty map": frames.encode({}),
    "number as key": raw((OP, GET), KEY, (msgpack.packb(1), msgpack.packb(1))),
    "bin as key": raw((OP, GET), KEY, (msgpack.packb(b"model"), msgpack.packb("m"))),
    "nil as key": raw((OP, GET), KEY, (b"\xc0", msgpack.packb(1))),
    "number as key in metadata": frames.encode(
        {"op": "set", "key": b"k", "value": b"v", "metadata": {1: 2}}
    ),
    "number as key deep in metadata": frames.encode(
        {"op": "set", "key": b"k", "value": b"v", "metadata": {"a": [{"b": {1: 2}}]}}
    ),
    "op not UTF-8": raw((OP, b"\xa3\xff\xfe\xfd"), KEY),
    "model not UTF-8": raw((OP, GET), KEY, (msgpack.packb("model"), b"\xa2\xc3\x28")),
    "key name not UTF-8": raw((OP, GET), KEY, (b"\xa2\xc3\x28", msgpack.packb("m"))),
    "op is a number": frames.encode({"op": 7}),
    "array longer than the frame": raw((OP, GET), (msgpack.packb("key"), b"\xdd\xff\xff\xff\xff")),
    "bin longer than the frame": raw((OP, GET), (msgpack.packb("key"), b"\xc6\xff\xff\xff\xff")),
    "map longer than the frame": frames.frame(b"\xdf\xff\xff\xff\xff" + OP + GET),
    "nested without end": frames.frame(b"\x82" + OP + GET + b"\xa1m" + b"\x91" * 100_000),
    "unknown op": frames.encode({"op": "get_all"}),
    "an op of protocol 2": frames.encode({"op": "locate"}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_frame_closes_without_a_word(daemon, name):
    bystander = daemon.connection()
    expect_alive(daemon, bystander)
    connection = daemon.connection()
    connection.send(BROKEN[name])
    expect_closed(connection)
    expect_alive(daemon, bystander)
    assert daemon.stats()["entries"] == 0


@pytest.mark.parametrize(
    ("op", "field"), [(op, field) for op, fields in SMALLEST.items() for field in fields]
)
def test_missing_required_field_closes(daemon, op, field):
    connection = daemon.connection()
    rest = {name: value for name, value in SMALLEST[op].items() if name != field}
    connection.send(frames.encode({"op": op, **rest}))
    expect_closed(connection)
    daemon.stats()


@pytest.mark.parametrize("op", [op for op in SMALLEST if op != "stats"])
def test_unknown_field_closes(daemon, op):
    connection = daemon.connection()
    connection.send(frames.encode({"op": op, **SMALLEST[op], "request_id": 1}))
    expect_closed(connection)
    assert daemon.stats()["entries"] == 0


def test_stats_ignores_unknown_fields(daemon):
    connection = daemon.connection()
    connection.send(frames.encode({"op": "stats", "verbose": True, "nested": {"a": [1]}}))
    assert frames.decode_reply(connection.receive_body())["op"] == "stats_response"


@pytest.mark.parametrize("op", REPLY_TO)
def test_required_fields_alone_are_enough(daemon, op):
    connection = daemon.connection()
    connection.send(frames.encode({"op": op, **SMALLEST[op]}))
    reply = frames.decode_reply(connection.receive_body())
    assert reply["op"] in REPLY_TO[op]
    # Also the order of the fields is the table's.
    assert list(reply) == ["op", *frames.REPLIES[reply["op"]]]


@pytest.mark.parametrize("op", REPLY_TO)
def test_fields_may_come_in_any_order(daemon, op):
    connection = daemon.connection()
    defaults = {k: v for k, v in frames.REQUESTS[op].items() if v is not frames.REQUIRED}
    backwards = reversed({"op": op, **SMALLEST[op], **defaults}.items())
    connection.send(frames.encode(dict(backwards)))
    assert frames.decode_reply(connection.receive_body())["op"] in REPLY_TO[op]


def test_set_with_its_fields_in_any_order_stores_the_value(inline):
    fields = {
        "key": b"k",
        "value": b"v" * 100_000,
        "retention": "long",
        "model": "m",
        "compat_key": "c",
        "metadata": {"deep": {"er": [1, b"2", None, 2.5, True]}},
        "ttl_seconds": 60,
        "op": "set",
    }
    names = list(fields)
    for turn in range(len(names)):
        order = names[turn:] + names[:turn]
        value = bytes([turn]) * 100_000
        message = {**fields, "value": value}
        reply = inline.exchange(frames.encode({name: message[name] for name in order}))
        assert reply == {"op": "set_ack", "accepted": True, "reason": None}
        assert inline.get(b"k", model="m", compat_key="c").value == value


def test_numbers_of_any_width_are_read(inline):
    widths = [b"\x04", b"\xcc\x04", b"\xcd\x00\x04", b"\xce\0\0\0\x04", b"\xcf" + b"\0" * 7 + b"\x04"]
    widths += [b"\xd0\x04", b"\xd1\x00\x04", b"\xd2\0\0\0\x04", b"\xd3" + b"\0" * 7 + b"\x04"]
    for width in widths:
        reply = inline.exchange(
            raw(
                (OP, msgpack.packb("set_cancel")),
                (msgpack.packb("lease_token"), width),
            )
        )
        assert reply == {"op": "set_cancel_response"}


def test_containers_and_texts_of_any_width_are_read(inline):
    inline.set(b"k", b"v")
    for key in (b"\xc4\x01k", b"\xc5\x00\x01k", b"\xc6\x00\x00\x00\x01k"):
        for keys in (b"\x91", b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01"):
            body = b"\xde\x00\x02" + b"\xd9\x02op" + b"\xda\x00\x06exists" + b"\xdb\0\0\0\x04keys"
            reply = inline.exchange(frames.frame(body + keys + key))
            assert reply["present"] == [True]


@pytest.mark.parametrize("ttl", [60, 60.0, b"\xca" + struct.pack(">f", 60.5)])
def test_ttl_may_be_int_or_either_float(inline, ttl):
    encoded = ttl if isinstance(ttl, bytes) else msgpack.packb(ttl)
    inline.exchange(
        raw(
            (OP, msgpack.packb("set")),
            KEY,
            (msgpack.packb("value"), msgpack.packb(b"v")),
            (msgpack.packb("ttl_seconds"), encoded),
        )
    )
    assert inline.get(b"k").value == b"v"


def test_pipelined_requests_are_answered_in_order(daemon):
    connection = daemon.connection()
    count = 200
    sent = bytearray()
    for number in range(count):
        sent += frames.request("set", key=b"%d" % number, value=b"v%d" % number)
        sent += frames.request("prefetch_hint", keys=[b"%d" % number])
        sent += frames.request("get", key=b"%d" % number)
        sent += frames.request("exists", keys=[b"%d" % number, b"none"])
    connection.send(bytes(sent))
    for number in range(count):
        assert frames.decode_reply(connection.receive_body())["accepted"] is True
        assert frames.decode_reply(connection.receive_body())["value"] == b"v%d" % number
        assert frames.decode_reply(connection.receive_body())["present"] == [True, False]


def test_frames_may_arrive_in_crumbs(daemon):
    connection = daemon.connection()
    for piece in frames.request("set", key=b"k", value=b"value", model="m") + frames.request(
        "get", key=b"k", model="m"
    ):
        connection.send(bytes([piece]))
    assert frames.decode_reply(connection.receive_body())["accepted"] is True
    assert frames.decode_reply(connection.receive_body())["value"] == b"value"


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 5, 20, 40, 500_000, -1])
def test_eof_inside_a_frame_is_quiet_and_stores_nothing(daemon, kept):
    frame = frames.request("set", key=b"k", value=b"v" * 1_000_000)
    connection = daemon.connection()
    connection.send(frame[:kept])
    connection.socket.shutdown(1)
    expect_closed(connection)
    assert daemon.stats()["entries"] == 0
    assert daemon.stats()["sets_total"] == 0


def test_space_of_abandoned_sets_comes_back(daemon, inline):
    half = frames.request("set", key=b"half", value=b"v" * 8_000_000)[:4_000_000]
    for _ in range(40):
        connection = daemon.connection()
        connection.send(half)
        connection.close()
    for number in range(6):
        assert inline.set(b"%d" % number, b"v" * 8_000_000, retention="none") == (True, None)
    assert inline.stats()["evictions_total"] == 0


def test_length_above_the_limit_closes_before_the_body(start):
    daemon = start("--max-bytes", "16M", "--frame-bytes-max", "1M")
    connection = daemon.connection()
    connection.send(struct.pack(">I", (1 << 20) + 1))
    expect_closed(connection)
    inside = daemon.client(shared=False)
    assert inside.set(b"k", b"v" * 1_000_000) == (True, None)


def test_a_huge_length_allocates_nothing(daemon):
    status = f"/proc/{daemon.process.pid}/status"

    def resident():
        with open(status, encoding="ascii") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    before = resident()
    held = []
    for length in [0xFFFF_FFFF, 1 << 31, (1 << 31) - 1, 1 << 30] * 5:
        connection = daemon.connection()
        connection.send(struct.pack(">I", length) + b"\x82\xa2op\xa3get\xa3key\xc6\x3f\xff\xff\x00")
        held.append(connection)
    daemon.stats()
    assert resident() - before < 64 * 1024  # KiB


def test_who_trickles_a_large_body_is_closed_so_that_others_can_send_theirs(start):
    limits = ("--staging-bytes-max", "1M", "--write-stall", "500ms")
    daemon = start("--max-bytes", "16M", "--shared-arena-bytes", "0", *limits)
    slow = daemon.connection()
    body = msgpack.packb({"op": "batch_get", "keys": [b"k" * 250] * 8000})
    slow.send(struct.pack(">I", len(body)) + body[:-1000])
    slow.socket.settimeout(0.1)
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(200):
            slow.send(b"k")
            with contextlib.suppress(TimeoutError):
                if not slow.socket.recv(1):
                    raise BrokenPipeError
    assert daemon.client(shared=False).batch_get([b"k" * 250] * 8000) == [None] * 8000


def test_a_batch_of_too_many_keys_is_an_error_and_costs_little(daemon, inline):
    count = (1 << 20) + 1
    body = b"\x82\xa2op\xa9batch_get\xa4keys\xdd" + struct.pack(">I", count) + b"\xc4\0" * count
    with pytest.raises(KvdError, match="internal_error"):
        inline.exchange(struct.pack(">I", len(body)) + body)
    assert inline.exists([b""] * 1000) == [False] * 1000
    assert inline.stats()["gets_total"] == 0


@pytest.mark.parametrize("order", ["cpo", "pco", "opc", "pad"])
def test_a_hello_for_protocol_2_may_have_any_order_and_width(daemon, order):
    fields = {"o": ("op", "hello"), "c": ("client_id", "c"), "p": ("protocol_version", 2)}
    if order == "pad":
        wide = b"\xde\0\x03" + b"".join(msgpack.packb(word) for pair in fields.values() for word in pair)
    else:
        wide = msgpack.packb(dict(fields[letter] for letter in order))
    connection = daemon.connection()
    connection.send(struct.pack(">I", len(wide)) + wide)
    reply = msgpack.unpackb(connection.receive_body())
    assert reply["protocol_version"] == 2
    assert "epoch" in reply


def announced_set(value_bytes):
    """The first bytes of a frame whose `set` has a value of that length."""
    head = b"\x83\xa2op\xa3set\xa3key\xc4\x01k\xa5value\xc6" + struct.pack(">I", value_bytes)
    return struct.pack(">I", len(head) + value_bytes) + head


def test_who_stalls_inside_a_large_value_gives_its_room_back(start):
    daemon = start("--max-bytes", "64M", "--write-stall", "500ms")
    stalled = [daemon.connection() for _ in range(6)]
    for connection in stalled:
        connection.send(announced_set(10 << 20) + b"v" * 100_000)
    for connection in stalled:
        with contextlib.suppress(ConnectionResetError):
            assert connection.socket.recv(1) == b""
    inline = daemon.client(shared=False)
    for number in range(5):
        assert inline.set(b"%d" % number, b"w" * (10 << 20)) == (True, None)


def test_a_set_without_any_memory_to_receive_it_is_refused_and_the_connection_lives(start):
    limits = ("--staging-bytes-max", "4M", "--write-stall", "2s")
    daemon = start("--max-bytes", "16M", "--shared-arena-bytes", "0", *limits)
    inline = daemon.client(shared=False)
    number = 0
    while daemon.stats()["evictions_total"] == 0:
        inline.set(b"fill %d" % number, b"v" * (1 << 20), retention="long")
        number += 1
    # All staging memory goes to a body that keeps arriving, just fast enough.
    greedy = daemon.connection()
    body = msgpack.packb({"op": "batch_get", "keys": [b"k" * 250] * 16_000})
    greedy.send(struct.pack(">I", len(body)) + body[:-100])
    refused = threading.Event()

    def trickle():
        with contextlib.suppress(OSError):
            while not refused.wait(0.2):
                greedy.send(b"k")

    trickling = threading.Thread(target=trickle)
    trickling.start()
    try:
        assert inline.set(b"late", b"v" * (3 << 20), retention="short") == (False, "shed")
    finally:
        refused.set()
        trickling.join()
    assert inline.exists([b"late"]) == [False]

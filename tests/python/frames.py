"""Protocol-1 frames: a big-endian length, then one msgpack map whose first key is `op`.

The tables say which fields a message has, in the order of the wire. `REQUESTS` also says which must be there and what
stands for the others.
"""

import struct

import msgpack

REQUIRED = object()
NAMESPACE = {"model": "", "compat_key": ""}

REQUESTS = {
    "hello": {"client_id": REQUIRED, "protocol_version": 1, "prefers_shared_arena": False},
    "get": {"key": REQUIRED, **NAMESPACE},
    "batch_get": {"keys": REQUIRED, **NAMESPACE},
    "set": {
        "key": REQUIRED,
        "value": REQUIRED,
        "retention": "short",
        **NAMESPACE,
        "metadata": {},
        "ttl_seconds": None,
    },
    "batch_set": {
        "keys": REQUIRED,
        "values": REQUIRED,
        "retentions": REQUIRED,
        "metadatas": REQUIRED,
        **NAMESPACE,
        "ttls_seconds": None,
    },
    "set_reserve": {"size": REQUIRED},
    "set_commit": {
        "lease_token": REQUIRED,
        "key": REQUIRED,
        "length": REQUIRED,
        **NAMESPACE,
        "retention": "default",
        "ttl_seconds": 0,
    },
    "set_cancel": {"lease_token": REQUIRED},
    "prefetch_hint": {"keys": REQUIRED, **NAMESPACE, "deadline_ms": 1000},
    "exists": {"keys": REQUIRED, **NAMESPACE},
    "clear": {**NAMESPACE},
    "stats": {},
}

STATS = (
    "entries",
    "host_bytes",
    "spillover_bytes",
    "long_bytes",
    "gets_total",
    "sets_total",
    "hits_total",
    "misses_total",
    "evictions_total",
)

REPLIES = {
    "hello_ack": ("server_id", "protocol_version", "shared_arena"),
    "get_response": ("value", "retention"),
    "get_shared_response": ("slot_offset", "length", "version", "retention", "slot_size"),
    "batch_get_response": ("values", "retentions"),
    "batch_get_shared_response": ("offsets", "lengths", "versions", "retentions", "slot_size"),
    "set_ack": ("accepted", "reason"),
    "batch_set_ack": ("accepted", "reasons"),
    "set_reserve_response": (
        "lease_token",
        "slot_id",
        "payload_offset",
        "payload_max_size",
        "reason",
    ),
    "set_commit_response": ("accepted", "reason"),
    "set_cancel_response": (),
    "exists_response": ("present",),
    "clear_ack": ("cleared_entries",),
    "stats_response": STATS,
    "error": ("code", "message"),
}


def frame(body):
    """`body` with its length in front."""
    return struct.pack(">I", len(body)) + body


def encode(message):
    """The frame of `message`, a dict in wire order."""
    return frame(msgpack.packb(message))


def request(op, **fields):
    """The frame of a request with every field of its table, the absent ones at their defaults."""
    table = REQUESTS[op]
    unknown = fields.keys() - table.keys()
    missing = {name for name, value in table.items() if value is REQUIRED} - fields.keys()
    if unknown or missing:
        raise TypeError(f"{op}: unknown {unknown}, missing {missing}")
    return encode({"op": op, **{name: fields.get(name, value) for name, value in table.items()}})


def decode(body):
    """The map in a frame's body.

    Raises ValueError on anything that is not exactly one map with text keys.
    """
    message = msgpack.unpackb(body, raw=False, strict_map_key=True)
    if not isinstance(message, dict) or "op" not in message:
        raise ValueError(f"not a message: {message!r:.80}")
    return message


def decode_reply(body):
    """A reply with exactly the fields of its table; anything else is a ValueError, as with every known client."""
    message = decode(body)
    listed = REPLIES.get(message["op"])
    if listed is None:
        raise ValueError(f"unknown reply {message['op']!r}")
    if set(message) != {"op", *listed}:
        raise ValueError(f"{message['op']}: fields {sorted(message)}")
    return message

"""A small protocol-1 client that stands in for the unchanged Python clients of the reference daemon.

It was written from the protocol's page alone and shares no code with the daemon. It behaves as those clients do:
it maps the whole arena when it connects, checks a header's version twice before it copies and never afterwards, does
not check bounds, holds a lock around each round trip, never reconnects, and dies of a reply with an unknown field.
"""

import array
import contextlib
import mmap
import os
import socket
import struct
import threading
from dataclasses import dataclass

import frames

SOCKET_DEFAULT = "/var/run/infera-kvd.sock"
HEADER_BYTES = 16
TRIES = 3


class KvdError(Exception):
    """An `error` reply, or an answer that makes no sense (then the code is the client's own)."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code


@dataclass(frozen=True)
class Hit:
    """A value that was found. From the `_view` calls, `value` may be live memory of the arena."""

    value: bytes | memoryview
    retention: str | None


@dataclass(frozen=True)
class Lease:
    """The right to write `max_size` bytes at `offset` of the arena."""

    token: int
    slot_id: int
    offset: int
    max_size: int


class Connection:
    """A socket that carries frames. Dead after the first loss, for good."""

    def __init__(self, path, timeout=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(os.fspath(path))
        except OSError:
            self.socket.close()
            raise
        self.dead = False

    def send(self, data):
        """Sends `data` as it is."""
        if self.dead:
            raise ConnectionError("the daemon is gone")
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.dead = True
            raise

    def receive_exactly(self, count):
        """The next `count` bytes, by plain recv."""
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(min(count - len(parts), 1 << 20))
            except ConnectionResetError:
                self.dead = True
                raise
            if not part:
                self.dead = True
                raise ConnectionError(f"closed after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)

    def receive_body(self):
        """The body of the next frame."""
        (length,) = struct.unpack(">I", self.receive_exactly(4))
        return self.receive_exactly(length)

    def receive_descriptor(self):
        """The descriptor that comes with one marker byte; every further one is closed."""
        marker, ancillary, _flags, _address = self.socket.recvmsg(1, 256)
        if not marker:
            self.dead = True
            raise ConnectionError("closed before the descriptor")
        received = array.array("i")
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received.frombytes(data[: len(data) - len(data) % received.itemsize])
        for extra in received[1:]:
            os.close(extra)
        return received[0] if received else None

    def close(self):
        """Closes the socket."""
        self.dead = True
        self.socket.close()


class Client:
    """One connection to the daemon. Calls may come from any thread."""

    def __init__(
        self, path=None, client_id="kvd-v1", prefers_shared_arena=True, timeout=None, hello=True
    ):
        path = path or os.environ.get("INFERA_KVD_SOCKET", SOCKET_DEFAULT)
        self.connection = Connection(path, timeout)
        self.arena = None
        self.server = None
        self._lock = threading.Lock()
        try:
            if hello:
                self._attach(client_id, prefers_shared_arena)
        except BaseException:
            self.connection.close()
            raise

    def _attach(self, client_id, prefers_shared_arena):
        self.server = self.call(
            "hello", client_id=client_id, prefers_shared_arena=prefers_shared_arena
        )
        if self.server["op"] != "hello_ack" or not self.server["server_id"].startswith("kvd-"):
            raise KvdError("bad_handshake", repr(self.server))
        if self.server["shared_arena"] is None:
            return
        descriptor = self.connection.receive_descriptor()
        if descriptor is None:
            return
        try:
            # A client that cannot map says nothing and reads every later shared reply as a miss.
            with contextlib.suppress(OSError, ValueError):
                self.arena = mmap.mmap(
                    descriptor,
                    self.server["shared_arena"][0],
                    flags=mmap.MAP_SHARED | (mmap.MAP_POPULATE if prefault() else 0),
                    prot=mmap.PROT_READ | mmap.PROT_WRITE,
                )
        finally:
            os.close(descriptor)

    def call(self, op, **fields):
        """One round trip; the reply as a dict."""
        return self.exchange(frames.request(op, **fields))

    def exchange(self, frame):
        """Sends a frame as it is and waits for the next reply."""
        with self._lock:
            self.connection.send(frame)
            reply = frames.decode_reply(self.connection.receive_body())
        if reply["op"] == "error":
            raise KvdError(reply["code"], reply["message"])
        return reply

    def _expect(self, op, **fields):
        request, expected = op
        reply = self.call(request, **fields)
        if reply["op"] != expected:
            raise KvdError("unexpected_response", reply["op"])
        return reply

    def get(self, key, **namespace):
        """A Hit with bytes of its own, or None."""
        return self._get(key, namespace, self._copy)

    def get_view(self, key, **namespace):
        """As `get`, but the value may be live memory."""
        return self._get(key, namespace, self._view)

    def _get(self, key, namespace, take):
        reply = self.call("get", key=key, **namespace)
        if reply["op"] == "get_response":
            return inline(reply["value"], reply["retention"])
        if reply["op"] == "get_shared_response":
            return take(
                reply["slot_offset"], reply["length"], reply["version"], reply["retention"]
            )
        raise KvdError("unexpected_response", reply["op"])

    def batch_get(self, keys, **namespace):
        """One Hit or None for each key."""
        return self._batch_get(keys, namespace, self._copy)

    def batch_get_view(self, keys, **namespace):
        """As `batch_get`, but the values may be live memory."""
        return self._batch_get(keys, namespace, self._view)

    def _batch_get(self, keys, namespace, take):
        reply = self.call("batch_get", keys=list(keys), **namespace)
        if reply["op"] == "batch_get_response":
            columns = [reply["values"], reply["retentions"]]
            read = inline
        elif reply["op"] == "batch_get_shared_response":
            columns = [reply[name] for name in ("offsets", "lengths", "versions", "retentions")]

            def read(offset, length, version, retention):
                return take(offset, length, version, retention) if length > 0 else None

        else:
            raise KvdError("unexpected_response", reply["op"])
        if any(len(column) != len(keys) for column in columns):
            raise KvdError("bad_batch_get_response", f"{len(keys)} keys")
        return [read(*row) for row in zip(*columns, strict=True)]

    def set(self, key, value, **fields):
        """Is the value accepted? A pair of bool and reason."""
        reply = self._expect(("set", "set_ack"), key=key, value=value, **fields)
        return reply["accepted"], reply["reason"]

    def batch_set(self, items, **fields):
        """Stores (key, value, retention) triples; a pair (accepted, reason) for each."""
        keys, values, retentions = (
            (list(column) for column in zip(*items, strict=True)) if items else ([], [], [])
        )
        fields.setdefault("metadatas", [{} for _ in items])
        reply = self._expect(
            ("batch_set", "batch_set_ack"),
            keys=keys,
            values=values,
            retentions=retentions,
            **fields,
        )
        if len(reply["accepted"]) != len(items) or len(reply["reasons"]) != len(items):
            raise KvdError("bad_batch_set_response", f"{len(items)} items")
        return list(zip(reply["accepted"], reply["reasons"], strict=True))

    def reserve(self, size):
        """A Lease, or the reason why there is none."""
        reply = self._expect(("set_reserve", "set_reserve_response"), size=size)
        if reply["slot_id"] < 0:
            return reply["reason"]
        return Lease(
            reply["lease_token"],
            reply["slot_id"],
            reply["payload_offset"],
            reply["payload_max_size"],
        )

    def write(self, lease, data):
        """Writes into a lease; nobody checks that `data` fits."""
        self.arena[lease.offset : lease.offset + len(data)] = data

    def commit(self, lease, key, length, **fields):
        """Publishes a lease, given as a Lease or as its token; a pair of bool and reason."""
        token = lease.token if isinstance(lease, Lease) else lease
        reply = self._expect(
            ("set_commit", "set_commit_response"),
            lease_token=token,
            key=key,
            length=length,
            **fields,
        )
        return reply["accepted"], reply["reason"]

    def cancel(self, lease):
        """Gives a lease back, given as a Lease or as its token."""
        token = lease.token if isinstance(lease, Lease) else lease
        self._expect(("set_cancel", "set_cancel_response"), lease_token=token)

    def exists(self, keys, **namespace):
        """One bool for each key."""
        reply = self._expect(("exists", "exists_response"), keys=list(keys), **namespace)
        return reply["present"]

    def clear(self, **namespace):
        """The number of rows that were dropped from RAM."""
        return self._expect(("clear", "clear_ack"), **namespace)["cleared_entries"]

    def stats(self):
        """The nine figures, in wire order."""
        reply = self._expect(("stats", "stats_response"))
        return {name: reply[name] for name in frames.STATS}

    def prefetch_hint(self, keys, **fields):
        """Says which keys will be wanted. There is no answer."""
        with self._lock:
            self.connection.send(frames.request("prefetch_hint", keys=list(keys), **fields))

    def header(self, offset):
        """Version and length in the header of the payload at `offset`."""
        return struct.unpack_from("<II", self.arena, offset - HEADER_BYTES)

    def _is_stable(self, offset, version):
        if self.arena is None or offset < HEADER_BYTES:
            return False
        for _ in range(TRIES):
            first, _length = self.header(offset)
            second, _length = self.header(offset)
            if first == second == version and version % 2 == 0:
                return True
        return False

    def _copy(self, offset, length, version, retention):
        if not self._is_stable(offset, version):
            return None
        return Hit(self.arena[offset : offset + length], retention)

    def _view(self, offset, length, version, retention):
        if not self._is_stable(offset, version):
            return None
        return Hit(memoryview(self.arena)[offset : offset + length], retention)

    def close(self):
        """Closes the connection. Views that are still held keep the mapping."""
        self.connection.close()
        if self.arena is not None:
            with contextlib.suppress(BufferError):
                self.arena.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def inline(value, retention):
    """A row of an inline reply: nil is a miss, an empty value is a hit."""
    return None if value is None else Hit(value, retention)


def prefault():
    """Does the environment leave the pages of the arena to be mapped at once?"""
    said = os.environ.get("INFERA_KVD_ARENA_PREFAULT", "1")
    return said.strip().lower() not in ("0", "false", "no", "off")

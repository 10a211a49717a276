"""Attaching: the descriptor, its seals, what it maps, and many clients at once."""

import array
import fcntl
import mmap
import os
import socket
import threading

import frames
import pytest
from kvd_v1 import Client

F_GET_SEALS = 1034
F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16


def attach(daemon):
    """A bare attach: the ack, what came with the marker, and the connection."""
    connection = daemon.connection()
    connection.send(frames.request("hello", client_id="bare", prefers_shared_arena=True))
    ack = frames.decode_reply(connection.receive_body())
    marker, ancillary, flags, _ = connection.socket.recvmsg(1, 256)
    assert not flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
    return ack, marker, ancillary, connection


def test_ack_marker_and_exactly_one_descriptor(daemon):
    ack, marker, ancillary, connection = attach(daemon)
    assert list(ack) == ["op", *frames.REPLIES["hello_ack"]]
    assert ack["server_id"].startswith("kvd-")
    assert ack["protocol_version"] == 1
    size, slot_size, pid = ack["shared_arena"][:3]
    assert pid == daemon.process.pid
    assert slot_size >= 0
    assert marker == b"F"
    assert [(level, kind) for level, kind, _ in ancillary] == [
        (socket.SOL_SOCKET, socket.SCM_RIGHTS)
    ]
    (descriptor,) = array.array("i", ancillary[0][2])
    try:
        assert os.fstat(descriptor).st_size >= size == 64 << 20
        seals = fcntl.fcntl(descriptor, F_GET_SEALS)
        assert seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 7
        assert not seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)
        for length in (0, size // 2, size * 2):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, length)
        with mmap.mmap(descriptor, size) as mapped:
            assert len(mapped) == size
    finally:
        os.close(descriptor)
    # Nothing else comes: the next frame is the answer to the next request.
    connection.send(frames.request("stats"))
    assert frames.decode_reply(connection.receive_body())["op"] == "stats_response"


def test_no_arena_unless_asked_for(daemon):
    connection = daemon.connection()
    connection.send(frames.request("hello", client_id="c") + frames.request("stats"))
    ack = frames.decode_reply(connection.receive_body())
    assert ack["shared_arena"] is None
    assert frames.decode_reply(connection.receive_body())["op"] == "stats_response"


def test_no_arena_where_there_is_none(start):
    daemon = start("--max-bytes", "16M", "--shared-arena-bytes", "0")
    client = daemon.client()
    assert client.server["shared_arena"] is None
    assert client.set(b"k", b"v" * 5000) == (True, None)
    assert client.call("get", key=b"k")["op"] == "get_response"
    assert client.reserve(10) == "no_arena"
    accepted, reason = client.commit(1, b"k", 1)
    assert not accepted
    assert reason in ("no_arena", "unknown_lease")


def test_the_arena_has_its_configured_size(start):
    daemon = start("--max-bytes", "8M", "--shared-arena-bytes", "24M")
    daemon.announce("arena")
    assert daemon.client().server["shared_arena"][0] == 24 << 20


def test_fifty_clients_at_once(daemon):
    count = 50
    gate = threading.Barrier(count)
    troubles = []

    def live(number):
        try:
            gate.wait()
            with Client(daemon.socket, f"c{number}", timeout=60) as client:
                assert client.arena is not None
                key = b"key %d" % number
                assert client.set(key, key * 100) == (True, None)
                assert client.get(key).value == key * 100
        except Exception as trouble:  # noqa: BLE001 - whatever it was, the test reports it
            troubles.append(f"client {number}: {trouble!r}")

    threads = [threading.Thread(target=live, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    assert daemon.stats()["entries"] == count


def test_inline_clients_and_stats_are_served_while_a_large_arena_warms_up(start):
    daemon = start("--max-bytes", "2G")
    inline = daemon.client(shared=False)
    assert inline.stats()["entries"] == 0
    assert inline.set(b"k", b"v" * 100_000) == (True, None)
    assert inline.get(b"k").value == b"v" * 100_000
    # The answer to a client that wants the arena may wait for its pages, but not for long.
    arena = daemon.client()
    assert arena.server["shared_arena"][0] == 2 << 30
    assert arena.get(b"k").value == b"v" * 100_000


def test_a_client_that_does_not_populate_the_mapping_is_served(daemon, monkeypatch):
    monkeypatch.setenv("INFERA_KVD_ARENA_PREFAULT", "off")
    client = daemon.client()
    client.set(b"k", b"v" * 10_000)
    assert client.get(b"k").value == b"v" * 10_000


def test_a_client_that_cannot_map_reads_misses_and_stays(daemon):
    client = daemon.client()
    client.arena.close()
    client.arena = None
    client.set(b"k", b"v" * 10_000)
    assert client.get(b"k") is None
    assert client.exists([b"k"]) == [True]


def test_a_client_leaves_while_its_descriptor_is_on_the_way(daemon):
    watcher = daemon.client(shared=False)
    before = daemon.descriptors()
    for _ in range(50):
        connection = daemon.connection()
        connection.send(frames.request("hello", client_id="c", prefers_shared_arena=True))
        connection.close()
    with daemon.client() as client:
        assert client.arena is not None
    for _ in range(3000):
        watcher.stats()
        if daemon.descriptors() <= before:
            break
    assert daemon.descriptors() <= before


def test_a_restarted_daemon_hands_out_a_new_arena(start, folder):
    path = folder / "shared.sock"
    first = start("--max-bytes", "16M", socket_path=path)
    old = Client(path, timeout=30)
    old.set(b"k", b"first")
    first.stop()
    second = start("--max-bytes", "16M", socket_path=path)
    with pytest.raises((ConnectionError, BrokenPipeError)):
        old.get(b"k")
    # It never reconnects.
    with pytest.raises(ConnectionError):
        old.get(b"k")
    new = second.client()
    assert new.get(b"k") is None
    new.set(b"k", b"second")
    assert new.get(b"k").value == b"second"
    assert bytes(new.arena) != bytes(old.arena)
    old.close()

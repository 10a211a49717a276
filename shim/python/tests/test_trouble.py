"""Whatever is wrong with the daemon: misses and refusals by the deadline, a reason, and no exception on an engine's way."""

import socket
import threading

import infera_kvd
import pytest
from infera_kvd import Miss, Refusal

NAMES = ("model", "compat")


def every_answer(client):
    """The requests of an engine's way, each with one key."""
    return [
        client.get(*NAMES, b"k"),
        *client.fetch(*NAMES, [b"k"]),
        *client.load(*NAMES, [b"k"], [bytearray(1)]),
        *(Miss(one.miss) for one in client.locate(*NAMES, [b"k"], prefix=False)),
        client.put(*NAMES, b"k", b"v"),
        *client.reserve([1]),
        *client.save(*NAMES, [b"k"], [b"v"]),
    ]


def test_no_daemon_is_a_miss_and_a_refusal(folder):
    client = infera_kvd.Client(folder / "nothing.sock")
    assert client.trouble is None
    assert every_answer(client) == [Miss("not_connected")] * 4 + [Refusal("not_connected")] * 3
    assert "no daemon at" in client.trouble
    assert repr(*client.fetch(*NAMES, [b"k"])) == 'Miss("not_connected")'
    assert client.prefetch(*NAMES, [b"k"]) is None and "no daemon at" in client.trouble
    for call in (client.attach, client.stats, lambda: client.clear(everything=True)):
        with pytest.raises(infera_kvd.KvdError, match="no daemon at") as raised:
            call()
        assert raised.value.code == "not_connected"
    assert infera_kvd.KvdError.__mro__[1] is Exception


def test_a_daemon_that_never_answers_is_a_miss_by_the_deadline(folder):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "mute.sock"))
        listener.listen()
        client = infera_kvd.Client(folder / "mute.sock", deadline=0.02)
        assert every_answer(client) == [Miss("deadline")] * 4 + [Refusal("deadline")] * 3
        assert "no answer within" in client.trouble


def test_a_killed_daemon_is_a_miss_and_its_successor_is_found(start, folder):
    path = folder / "kvd.sock"
    daemon = start("--max-bytes", "64M", socket_path=path)
    client = infera_kvd.Client(path, deadline=30)
    epoch = client.attach().epoch
    client.put(*NAMES, b"k", b"v")
    (ticket,) = client.reserve([1])
    daemon.kill()
    assert client.get(*NAMES, b"k").reason in ("disconnected", "not_connected") and client.trouble
    start("--max-bytes", "64M", socket_path=path)
    assert client.attach().epoch != epoch
    assert client.get(*NAMES, b"k") == Miss("never_stored") and client.trouble is None
    ticket.write(b"v")
    assert client.commit(*NAMES, [(ticket, b"k")]) == [Refusal("stale_epoch")]
    assert "epoch" in client.trouble
    assert client.put(*NAMES, b"k", b"w") is None and client.get(*NAMES, b"k") == b"w"


def test_a_daemon_of_nonsense_breaks_the_protocol(folder):
    path = folder / "odd.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def babble():
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"\x00\x00\x00\x03abc")
                connection.recv(4096)

        babbler = threading.Thread(target=babble)
        babbler.start()
        client = infera_kvd.Client(path, deadline=30)
        with pytest.raises(infera_kvd.KvdError) as raised:
            client.attach()
        assert raised.value.code == "protocol"
        babbler.join()

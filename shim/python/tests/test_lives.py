"""Threads, forks and long lives: the interpreter's lock, and nothing that piles up."""

import gc
import os
import pathlib
import socket
import threading

import infera_kvd
import numpy
import pytest

NAMES = ("model", "compat")
TRIES = 2000


def test_waiting_leaves_the_interpreter_to_others(folder):
    """The daemon of this test is a thread of this process: it can only act while the client does not hold the lock."""
    path = folder / "own.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def hang_up():
            connection, _ = listener.accept()
            with connection:
                sum(range(100_000))

        for call in (
            lambda client: client.fetch(*NAMES, [b"k"]),
            lambda client: client.locate(*NAMES, [b"k"]),
            lambda client: client.reserve([1]),
            lambda client: client.save(*NAMES, [b"k"], [b"v"]),
            lambda client: client.load(*NAMES, [b"k"], [bytearray(1)]),
            lambda client: client.get(*NAMES, b"k"),
        ):
            thread = threading.Thread(target=hang_up)
            thread.start()
            client = infera_kvd.Client(path, deadline=5)
            call(client)
            thread.join()
            assert "no answer within" not in client.trouble, client.trouble


def seen_half_done(target, copy, tries=TRIES):
    """Whether another thread ever saw the target's first byte copied and its last byte not yet."""
    seen = threading.Event()
    over = threading.Event()

    def look():
        while not over.is_set():
            if target[0] == 1 and target[-1] == 0 and target[0] == 1:
                seen.set()

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(tries):
            target[-1] = 0
            target[0] = 0
            copy()
            assert target[0] == target[-1] == 1
            if seen.is_set():
                break
    finally:
        over.set()
        looker.join()
    return seen.is_set()


@pytest.fixture
def ones(client):
    """A block of ones that takes milliseconds to copy, stored as b"ones". One at a time is all that a session may hold."""
    block = numpy.ones(24 << 20, numpy.uint8)
    assert client.put(*NAMES, b"ones", block) is None
    return block


def test_copying_leaves_the_interpreter_to_others(client, ones):
    target = bytearray(ones.nbytes)
    (view,) = client.fetch(*NAMES, [b"ones"])
    assert seen_half_done(target, lambda: view.copy_to(target))
    view.release()
    assert seen_half_done(target, lambda: client.load(*NAMES, [b"ones"], [target]))
    (ticket,) = client.reserve([ones.nbytes])
    assert seen_half_done(memoryview(ticket), lambda: ticket.write(ones))


def test_the_looker_sees_nothing_while_the_lock_is_held(ones):
    """The negative control: numpy copies bytes under the lock, in one call."""
    target = bytearray(ones.nbytes)
    source = bytes(ones)

    def copy():
        target[:] = source

    assert not seen_half_done(target, copy, tries=100)


def test_threads_share_a_client(client, held):
    faults = []

    def work(number):
        try:
            for turn in range(100):
                key, value = b"%d-%d" % (number, turn % 7), bytes([number]) * (turn + 1)
                assert client.save(*NAMES, [key], [value]) == [None]
                target = bytearray(len(value))
                assert client.load(*NAMES, [key], [target]) == [None] and target == value
                (view,) = client.fetch(*NAMES, [key])
                assert bytes(view) == value
        except Exception as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    assert held() == (0, 0)


def in_child(work):
    """Runs `work` in a forked child; what it raised, as text."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            work()
            os.write(sending, b"ok")
        except BaseException as fault:
            os.write(sending, repr(fault).encode())
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said.decode()


def test_a_forked_child_has_a_connection_of_its_own(client, held):
    client.put(*NAMES, b"k", b"v")
    session = client.attach().session
    (view,) = client.fetch(*NAMES, [b"k"])
    (ticket,) = client.reserve([1])
    rights = {"view": view, "ticket": ticket}

    def child():
        assert client.attach().session != session
        assert client.get(*NAMES, b"k") == b"v"
        assert bytes(rights["view"]) == b"v"
        assert client.put(*NAMES, b"child", b"c") is None
        rights.clear()
        gc.collect()

    del view, ticket
    assert in_child(child) == "ok"
    assert held() == (1, 1), "the parent's rights are the parent's"
    assert client.attach().session == session
    assert client.get(*NAMES, b"child") == b"c"
    assert bytes(rights["view"]) == b"v"
    rights["ticket"].write(b"p")
    assert client.commit(*NAMES, [(rights["ticket"], b"parent")]) == [None]


def test_a_child_cannot_commit_its_parents_ticket(client):
    (ticket,) = client.reserve([1])

    def child():
        refusals = client.commit(*NAMES, [(ticket, b"k")])
        assert refusals == [infera_kvd.Refusal("stale_session")], refusals

    assert in_child(child) == "ok"
    ticket.write(b"p")
    assert client.commit(*NAMES, [(ticket, b"k")]) == [None]


def private_bytes():
    """Memory of this process that is its own, the arena left out."""
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def test_nothing_piles_up(client, held):
    target = bytearray(512)
    block = bytes(512)
    lineage = infera_kvd.Lineage([b"h" * 32])

    def cycle(number):
        key = b"%d" % (number % 50)
        assert client.save(*NAMES, [key], [[block[:100], block[100:]]], lineages=[lineage]) == [None]
        assert client.load(*NAMES, [key, b"?"], [target, target])[0] is None
        view, miss = client.fetch(*NAMES, [key, b"?"])
        with memoryview(view) as buffer:
            assert len(buffer) == 512 and not miss
        (ticket,) = client.reserve([16])
        with pytest.raises(BufferError), memoryview(ticket):
            ticket.cancel()
        client.locate(*NAMES, [key, b"?"])

    for number in range(1_000):
        cycle(number)
    gc.collect()
    before = private_bytes()
    files = len(os.listdir("/proc/self/fd"))
    for number in range(10_000):
        cycle(number)
    gc.collect()
    assert held() == (0, 0)
    grown = private_bytes() - before
    assert grown < 1 << 20, f"{grown} bytes more after 10 000 cycles"
    assert len(os.listdir("/proc/self/fd")) == files

"""EXISTS is a promise: engines allocate memory on the strength of it, so what was said to be there must load."""

import threading

MIB = 1 << 20


def press(daemon, megabytes=200):
    """Writes several times the arena in the highest class."""
    writer = daemon.client(shared=False)
    for number in range(megabytes):
        writer.set(b"press %d" % number, b"p" * MIB, retention="long")
    writer.close()


def test_what_exists_stays_loadable_under_pressure(daemon):
    """A quarter of the arena may be promised; 8 of 64 MiB are."""
    scheduler, worker = daemon.client(shared=False), daemon.client()
    keys = [b"key %d" % number for number in range(8)]
    for number, key in enumerate(keys):
        scheduler.set(key, bytes([number]) * MIB, retention="none")
    scheduler.set(b"not asked for", b"v" * MIB, retention="none")
    assert scheduler.exists(keys) == [True] * 8
    press(daemon)
    for number, key in enumerate(keys):
        assert worker.get(key).value == bytes([number]) * MIB
    assert worker.get(b"not asked for") is None


def test_a_promise_holds_while_others_write_at_the_same_time(daemon):
    writers = [threading.Thread(target=press, args=(daemon, 100)) for _ in range(3)]
    for writer in writers:
        writer.start()
    scheduler, worker = daemon.client(shared=False), daemon.client()
    told = loaded = 0
    for number in range(60):
        key = b"key %d" % number
        scheduler.set(key, bytes([number]) * 100_000, retention="none")
        if scheduler.exists([key]) == [True]:
            told += 1
            hit = worker.get(key)
            loaded += hit is not None and hit.value == bytes([number]) * 100_000
    for writer in writers:
        writer.join()
    assert told > 0
    assert loaded == told


def test_the_promise_covers_every_rank_and_group_of_the_chunk(daemon):
    """The scheduler asks once; workers load the same seven bytes under each compat_key and each last byte."""
    scheduler, worker = daemon.client(shared=False), daemon.client()
    chunk = b"\x01\x02\x03\x04\x05\x06\x07"
    ranks = [f"tp{rank}of4_pp0of1" for rank in range(4)]
    for rank in ranks:
        for group in range(2):
            key = chunk + bytes([group])
            scheduler.set(key, rank.encode() * 80_000, retention="none", model="m", compat_key=rank)
    scheduler.set(chunk + b"\0", b"v" * MIB, retention="none", model="other", compat_key=ranks[0])
    asked = scheduler.exists([chunk + b"\0"], model="m", compat_key=ranks[0])
    assert asked == [True]
    press(daemon)
    for rank in ranks:
        for group in range(2):
            hit = worker.get(chunk + bytes([group]), model="m", compat_key=rank)
            assert hit.value == rank.encode() * 80_000
    assert worker.get(chunk + b"\0", model="other", compat_key=ranks[0]) is None


def test_more_than_a_quarter_is_not_promised(daemon):
    """Beyond the bound EXISTS says no; what it said yes to still loads."""
    client = daemon.client(shared=False)
    keys = [b"key %d" % number for number in range(40)]
    for key in keys:
        assert client.set(key, b"v" * MIB, retention="short") == (True, None)
    present = client.exists(keys)
    assert 4 <= sum(present) <= 16
    press(daemon)
    kept = [client.get(key) is not None for key in keys]
    assert all(there for there, told in zip(kept, present, strict=True) if told)


def test_clear_and_time_beat_promises(daemon):
    client = daemon.client(shared=False)
    client.set(b"k", b"v")
    assert client.exists([b"k"]) == [True]
    assert client.clear() == 1
    assert client.exists([b"k"]) == [False]
    assert client.get(b"k") is None


def test_a_promised_row_may_be_overwritten(daemon):
    client = daemon.client(shared=False)
    client.set(b"k", b"v" * MIB, retention="short")
    assert client.exists([b"k"]) == [True]
    assert client.set(b"k", b"w" * 2 * MIB, retention="short") == (True, None)
    assert client.get(b"k").value == b"w" * 2 * MIB

"""Whatever the client does, the engine gets an answer, and the log one line."""

import pytest
from stand_ins import Client, Log, Unavailable

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import KEYS_FIRST, KEYS_MAX, LOAD_BYTES, LOSSES_SAID, QUIET_SECONDS, Daemon
from infera_kvd.engine.keys import Shard
from infera_kvd.engine.options import Keep

SHARD = Shard("m", "c", 4)
OTHER = Shard("m", "d", 4)


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def daemon(client, log):
    return Daemon([client], Counters(), log)


def put(client, shard, keys, value=b"1234"):
    """Stores one value under many keys."""
    client.values.update({(shard.model, shard.compat_key, key): value for key in keys})


def test_only_the_leading_keys_count(client, daemon):
    put(client, SHARD, [b"a", b"b", b"d"])
    assert daemon.locate([SHARD], [b"a", b"b", b"c", b"d"]) == 2


def test_every_rank_must_have_it(client, daemon):
    put(client, SHARD, [b"a", b"b", b"c"])
    put(client, OTHER, [b"a"])
    assert daemon.locate([SHARD, OTHER], [b"a", b"b", b"c"]) == 1


def test_long_prompts_are_asked_in_parts_until_the_first_miss(client, daemon):
    keys = [i.to_bytes(4, "big") for i in range(3 * KEYS_MAX)]
    put(client, SHARD, keys[: KEYS_MAX + KEYS_FIRST + 5])
    assert daemon.locate([SHARD], keys) == KEYS_MAX + KEYS_FIRST + 5
    assert [len(asked) for _, asked in client.calls] == [KEYS_FIRST, KEYS_MAX, KEYS_MAX]


def test_a_miss_costs_one_short_call(client, daemon):
    keys = [i.to_bytes(4, "big") for i in range(KEYS_MAX)]
    assert daemon.ready([SHARD, OTHER], keys) == []
    assert [len(asked) for _, asked in client.calls] == [KEYS_FIRST]


def test_a_block_is_ready_with_those_before_it_on_every_rank(client, daemon):
    put(client, SHARD, [b"a", b"b", b"c", b"d"])
    put(client, OTHER, [b"a", b"b", b"c"])
    times = iter([10, 50, 20, 30, 40, 45, 60])
    client.load_us = lambda key: next(times)
    assert daemon.ready([SHARD, OTHER], [b"a", b"b", b"c", b"d"]) == [40e-6, 50e-6, 60e-6]


def test_a_value_of_another_size_is_a_miss_and_said_once(client, daemon, log):
    put(client, SHARD, [b"a"], b"12345")
    assert daemon.locate([SHARD], [b"a"]) == 0
    assert daemon.present(SHARD, [b"a"]) == [False]
    assert len(log.lines) == 1


def test_loads_name_what_failed(client, daemon):
    put(client, SHARD, [b"a", b"c"])
    targets = [[bytearray(2), bytearray(2)] for _ in range(3)]
    assert daemon.load(SHARD, [b"a", b"b", b"c"], targets) == [1]
    assert targets[0] == [b"12", b"34"]


def test_a_long_load_goes_in_parts_until_one_fails(client, daemon):
    large = Shard("m", "c", LOAD_BYTES // 2)
    keys = [bytes([number]) for number in range(7)]
    put(client, large, keys)
    client.lost = lambda key: key == keys[3]
    assert daemon.load(large, keys, [[bytearray(4)] for _ in keys]) == [3, 4, 5, 6]
    assert [len(asked) for _, asked in client.calls] == [2, 2]


def test_a_long_load_that_does_not_go_on_ends_behind_its_first_part(client, daemon):
    large = Shard("m", "c", LOAD_BYTES // 2)
    keys = [bytes([number]) for number in range(7)]
    put(client, large, keys)
    answers = iter([True, False])
    assert daemon.load(large, keys, [[bytearray(4)] for _ in keys], lambda: next(answers)) == [4, 5, 6]
    assert [len(asked) for _, asked in client.calls] == [2, 2]


@pytest.mark.parametrize("fault", [BufferError("not contiguous"), TypeError("no buffer"), OverflowError("too long")])
def test_what_cannot_be_asked_for_is_no_fault_of_the_daemon(client, log, fault):
    counters = Counters()
    daemon = Daemon([client], counters, log)
    client.fault = fault
    for _ in range(3):
        assert daemon.load(SHARD, [b"a"], [[bytearray(4)]]) == [0]
    assert [level for level, _ in log.lines] == ["error"]
    assert f"load was asked for in a way that cannot be ({type(fault).__name__}: {fault})" in log.lines[0][1]
    assert daemon.save(SHARD, [b"a"], [[b"1234"]], Keep(), [None]) == [False]
    assert "save was asked for" in log.lines[1][1]
    assert "daemon_losses" not in counters.take()
    client.fault = None
    assert daemon.present(SHARD, [b"a"]) == [False]
    assert len(log.lines) == 2, "it was not away, so it is not back"


def test_refusals_are_counted(client):
    counters = Counters()
    daemon = Daemon([client], counters, Log())
    client.refused = {b"b"}
    daemon.save(SHARD, [b"a", b"b"], [[b"1234"], [b"5678"]], Keep(), [None, None])
    assert counters.take() == {"saved_blocks": 1, "saved_bytes": 4, "save_refused_blocks": 1}


@pytest.mark.parametrize("how", ["raises", "says so"])
def test_a_dead_daemon_is_a_miss_and_one_line_each_way(client, daemon, log, how):
    put(client, SHARD, [b"a"])
    if how == "raises":
        client.fault = Unavailable("gone")
    else:
        client.trouble = "gone"
    for _ in range(3):
        assert daemon.locate([SHARD], [b"a"]) == 0
        assert daemon.present(SHARD, [b"a"]) == [False]
        assert daemon.load(SHARD, [b"a"], [[bytearray(4)]]) == [0]
        daemon.save(SHARD, [b"b"], [[b"1234"]], Keep(), [None])
    client.fault = client.trouble = None
    assert daemon.locate([SHARD], [b"a"]) == 1
    assert [level for level, _ in log.lines] == ["warning", "info"]
    assert "gone" in log.lines[0][1]


def test_a_daemon_that_comes_and_goes_does_not_fill_the_log(client, log):
    now, counters = [0.0], Counters()
    daemon = Daemon([client], counters, log, clock=lambda: now[0])

    def call(trouble):
        client.trouble = trouble
        daemon.locate([SHARD], [b"a"])

    for _ in range(100):
        call("too late")
        call(None)
    assert [level for level, _ in log.lines] == ["warning", "info"] * LOSSES_SAID
    assert counters.take()["daemon_losses"] == 100
    call("gone")
    assert len(log.lines) == 2 * LOSSES_SAID
    now[0] += QUIET_SECONDS
    call("gone")
    call("gone")
    call(None)
    assert [level for level, _ in log.lines[2 * LOSSES_SAID :]] == ["warning", "info"], "an outage that lasts is said"

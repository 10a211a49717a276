"""A tier against a daemon that is a dictionary: rows go out and come back, and every fault ends in computing."""

import threading
import time

import pytest
from stand_ins import Client, Log, Unavailable

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import KEYS_MAX, Daemon
from infera_kvd.engine.keys import Shard, block_key
from infera_kvd.engine.options import MISTAKES_SHOWN, Options
from infera_kvd.vllm.tier_rows import Connections, RowStore

WAIT_SECONDS = 30
ROW_BYTES = 4
ROWS = 16
CHUNK_TOKENS = 64
GROUP = b"\0\0\0\0"
SHARD = Shard("model", "compat", ROW_BYTES)
KEYS = [block_key(b"hash %d" % number) for number in range(6)]
POSITIONS = {key: (number + 1) * CHUNK_TOKENS for number, key in enumerate(KEYS)}


class Tier:
    """A row store, what it stands on, and an engine's way of using it."""

    def __init__(self, **options):
        self.client, self.counters, self.log = Client(), Counters(), Log()
        self.memory = [bytearray(ROW_BYTES) for _ in range(ROWS)]
        self.lineages = []
        self.daemons = [Daemon([self.client], self.counters, self.log) for _ in range(3)]
        self.store = RowStore(
            Connections(*self.daemons),
            SHARD,
            self.memory,
            {GROUP: CHUNK_TOKENS},
            Options(**{"save_drain_seconds": 1, **options}),
            self.counters,
            lambda hashes, **about: self.lineages.append((hashes, about)) or (hashes, about),
            self.log,
        )
        self._jobs = 0

    def request(self, **parameters):
        return self.store.request("r", parameters or None, POSITIONS)

    def look_up(self, keys):
        """The answers, in as many steps as they take."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            answers = [self.store.lookup(key) for key in keys]
            if None not in answers:
                return answers
            self.store.step_ends()
            time.sleep(0.001)
        raise TimeoutError

    def end_of(self, job_id):
        """The end of a job."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for job in self.store.take_finished():
                assert job.job_id == job_id
                return job
            time.sleep(0.001)
        raise TimeoutError

    def save(self, keys, values, request=None):
        """Puts values into rows and has them stored: the end of that job."""
        for number, value in enumerate(values):
            self.memory[number][:] = value
        self._jobs += 1
        self.store.store(self._jobs, keys, list(range(len(keys))), request or self.request())
        return self.end_of(self._jobs)

    def load(self, keys):
        """Has rows filled, from the eighth on: the end of that job."""
        self._jobs += 1
        self.store.load(self._jobs, keys, list(range(8, 8 + len(keys))))
        return self.end_of(self._jobs)

    def loaded(self, count):
        return [bytes(row) for row in self.memory[8 : 8 + count]]


@pytest.fixture
def tier():
    made = Tier()
    yield made
    made.client.fault = made.client.trouble = None
    made.store.close()


def test_rows_come_back_as_they_went(tier):
    assert tier.look_up(KEYS[:2]) == [False, False]
    job = tier.save(KEYS[:2], [b"aaaa", b"bbbb"])
    assert (job.is_load, job.done, job.failed) == (False, tuple(KEYS[:2]), ())
    assert tier.look_up(KEYS[:3]) == [True, True, False]
    job = tier.load(KEYS[:2])
    assert (job.is_load, job.done, job.failed) == (True, tuple(KEYS[:2]), ())
    assert tier.loaded(2) == [b"aaaa", b"bbbb"]


def test_what_is_there_is_not_stored_twice(tier):
    tier.save(KEYS[:1], [b"aaaa"])
    assert tier.save(KEYS[:2], [b"aaaa", b"bbbb"]).failed == ()
    assert [keys for call, keys in tier.client.calls if call == "save"] == [KEYS[:1], KEYS[1:2]]
    assert tier.counters.totals()["save_present_blocks"] == 1


def test_a_long_prompt_is_asked_in_parts_not_key_by_key(tier):
    keys = [block_key(number.to_bytes(4, "big")) for number in range(KEYS_MAX + 10)]
    tier.client.values[SHARD.model, SHARD.compat_key, keys[-1]] = b"aaaa"
    assert tier.look_up(keys) == [False] * (KEYS_MAX + 9) + [True]
    assert [len(asked) for _, asked in tier.client.calls] == [KEYS_MAX, 10]
    totals = tier.counters.totals()
    assert (totals["lookups"], totals["lookup_blocks"], totals["lookup_hit_blocks"]) == (1, KEYS_MAX + 10, 1)


def test_a_lost_row_fails_and_is_missing_until_it_is_stored_again(tier):
    tier.save(KEYS[:3], [b"aaaa", b"bbbb", b"cccc"])
    tier.client.lost = lambda key: key == KEYS[1]
    assert tier.look_up(KEYS[:3]) == [True] * 3
    job = tier.load(KEYS[:3])
    assert (job.done, job.failed) == ((KEYS[0], KEYS[2]), (KEYS[1],))
    # The daemon says that it has it; that is not believed.
    for _ in range(3):
        assert tier.look_up(KEYS[:3]) == [True, False, True]
    # And so it is stored although it seems to be there.
    tier.client.lost = lambda key: False
    assert tier.save(KEYS[1:2], [b"BBBB"]).failed == ()
    assert tier.look_up(KEYS[:3]) == [True] * 3
    tier.load(KEYS[1:2])
    assert tier.loaded(1) == [b"BBBB"]


def test_a_refused_row_stays_missing(tier):
    tier.save(KEYS[:1], [b"aaaa"])
    tier.client.lost = lambda key: True
    tier.load(KEYS[:1])
    tier.client.refused = {KEYS[0]}
    job = tier.save(KEYS[:2], [b"AAAA", b"bbbb"])
    assert (job.done, job.failed) == ((KEYS[1],), (KEYS[0],))
    assert tier.look_up(KEYS[:2]) == [False, True]
    assert tier.counters.totals()["save_refused_blocks"] == 1


def test_a_row_of_another_size_is_a_miss_and_replaced(tier):
    tier.client.values[SHARD.model, SHARD.compat_key, KEYS[0]] = b"odd"
    assert tier.look_up(KEYS[:1]) == [False]
    assert [level for level, _ in tier.log.lines] == ["warning"]
    tier.save(KEYS[:1], [b"aaaa"])
    tier.store.step_ends()
    assert tier.look_up(KEYS[:1]) == [True]


@pytest.mark.parametrize("how", ["raises", "says so"])
@pytest.mark.parametrize("when", ["lookup", "load", "store"])
def test_a_daemon_that_dies_is_a_miss_wherever_it_dies(tier, how, when):
    tier.save(KEYS[:2], [b"aaaa", b"bbbb"])
    if when != "lookup":
        assert tier.look_up(KEYS[:2]) == [True, True]
    if how == "raises":
        tier.client.fault = Unavailable("gone")
    else:
        tier.client.trouble = "gone"
    if when == "load":
        assert tier.load(KEYS[:2]).failed == tuple(KEYS[:2])
    if when == "store":
        assert tier.save(KEYS[2:4], [b"cccc", b"dddd"]).failed == tuple(KEYS[2:4])
        # A row that was never there is no reason to distrust the daemon later.
        assert tier.look_up(KEYS[2:4]) == [False, False]
    else:
        assert tier.look_up(KEYS[:2]) == [False, False]
    assert len([line for line in tier.log.lines if "does not answer" in line[1]]) <= 3

    tier.client.fault = tier.client.trouble = None
    tier.save(KEYS[:2], [b"AAAA", b"BBBB"])
    assert tier.look_up(KEYS[:2]) == [True, True]
    assert tier.load(KEYS[:2]).failed == ()


def test_a_daemon_that_is_slow_to_answer_is_not_asked_for_the_rest():
    tier = Tier(deadline_seconds=0.05)
    answer = tier.client.locate

    def slow(*arguments, **named):
        time.sleep(0.1)
        return answer(*arguments, **named)

    tier.client.locate = slow
    keys = [block_key(number.to_bytes(4, "big")) for number in range(3 * KEYS_MAX)]
    assert tier.look_up(keys) == [False] * len(keys)
    assert len(tier.client.calls) == 1
    tier.store.close()


def test_a_request_says_how_its_rows_are_kept(tier):
    kept, save = [], tier.client.save

    def noting(*arguments, **named):
        kept.append((named["retention"], named["ttl"]))
        return save(*arguments, **named)

    tier.client.save = noting
    tier.save(KEYS[:1], [b"aaaa"])
    tier.save(KEYS[1:2], [b"bbbb"], tier.request(infera_retention="short", infera_ttl_seconds=5))
    assert kept == [("long", None), ("short", 5)]


def test_of_a_request_with_a_mistake_nothing_is_stored_and_that_is_said(tier):
    for _ in range(MISTAKES_SHOWN + 5):
        request = tier.request(infera_retention="for ever")
    assert tier.save(KEYS[:1], [b"aaaa"], request).failed == (KEYS[0],)
    assert [call for call, _ in tier.client.calls if call == "save"] == []
    assert len(tier.log.lines) == MISTAKES_SHOWN


def test_lineage_follows_the_chain_also_behind_rows_that_were_found(tier):
    request = tier.request()
    tier.save([KEYS[0]], [b"aaaa"], request)
    tier.save([KEYS[3], KEYS[4]], [b"dddd", b"eeee"], request)
    hashes = [key[:-4] for key in KEYS]
    assert tier.lineages == [
        ([hashes[0]], {"parent": None, "tokens_per_block": CHUNK_TOKENS}),
        ([hashes[3]], {"parent": hashes[2], "tokens_per_block": CHUNK_TOKENS}),
        ([hashes[4]], {"parent": hashes[3], "tokens_per_block": CHUNK_TOKENS}),
    ]


def test_where_the_parent_is_not_known_there_is_no_lineage(tier):
    unknown_group = block_key(b"hash", 7)
    orphan = block_key(b"orphan")
    request = tier.store.request("r", None, {orphan: 5 * CHUNK_TOKENS})
    assert tier.save([unknown_group, orphan, block_key(b"no place")], [b"aaaa"] * 3, request).failed == ()
    assert tier.lineages == []


def test_positions_may_come_while_the_request_goes_on(tier):
    positions = {}
    request = tier.store.request("r", None, positions)
    for number, key in enumerate(KEYS[:3]):
        positions[key] = POSITIONS[key]
        tier.save([key], [b"%d" % number * 4], request)
    assert [about["parent"] for _, about in tier.lineages] == [None, KEYS[0][:-4], KEYS[1][:-4]]


def test_after_a_reset_nothing_of_before_is_found_or_filled_in(tier):
    tier.save(KEYS[:1], [b"aaaa"])
    assert tier.look_up(KEYS[:2]) == [True, False]
    tier.store.drain()
    tier.store.forget()
    assert tier.look_up(KEYS[:1]) == [False]
    assert tier.save(KEYS[:1], [b"AAAA"]).failed == ()
    assert tier.look_up(KEYS[:1]) == [True]
    tier.load(KEYS[:1])
    assert tier.loaded(1) == [b"AAAA"]
    assert sorted(value for value in tier.client.values.values()) == [b"AAAA", b"aaaa"]


class Blocked:
    """A call of the client that does not come back until it is let."""

    def __init__(self, client, call):
        self.entered, self.may_go_on = threading.Event(), threading.Event()
        answer = getattr(client, call)

        def blocked(*arguments, **named):
            self.entered.set()
            assert self.may_go_on.wait(WAIT_SECONDS)
            return answer(*arguments, **named)

        setattr(client, call, blocked)


@pytest.mark.parametrize("call", ["load", "save", "locate"])
def test_nothing_waits_for_a_daemon_that_hangs_but_a_drain_which_has_its_deadline(call):
    tier = Tier(save_drain_seconds=0.05)
    tier.save(KEYS[:1], [b"aaaa"])
    blocked = Blocked(tier.client, call)
    begun = time.monotonic()
    tier.store.lookup(KEYS[0])
    tier.store.step_ends()
    for number in range(3):
        tier.store.load(100 + number, KEYS[:1], [8 + number])
        tier.store.store(200 + number, KEYS[2 + number : 3 + number], [number], tier.request())
    tier.store.take_finished()
    assert time.monotonic() - begun < WAIT_SECONDS / 2
    assert blocked.entered.wait(WAIT_SECONDS)
    # As the client's own deadline would.
    threading.Timer(0.3, blocked.may_go_on.set).start()
    ended = tier.store.take_finished()
    tier.store.drain()
    ended += tier.store.take_finished()
    assert {job.job_id for job in ended} == {100, 101, 102, 200, 201, 202}
    tier.store.close()


def test_the_end_stores_what_waits_and_leaves_no_thread():
    tier = Tier()
    before = {thread.name for thread in threading.enumerate()}
    assert {"infera-kvd-tier-lookup", "infera-kvd-tier-load", "infera-kvd-tier-save"} <= before
    tier.memory[0][:] = b"aaaa"
    tier.store.store(1, KEYS[:1], [0], tier.request())
    tier.store.close()
    assert list(tier.client.values.values()) == [b"aaaa"]
    assert tier.client.closed
    assert not {thread.name for thread in threading.enumerate() if thread.name.startswith("infera-kvd-tier")}

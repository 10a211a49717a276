"""The linker's loads and offloads: pinned before they start, layer by layer, in order, and never waited for without end."""

import threading

import pytest
from sglang_stand_ins import WAIT_SECONDS, Client, LayerCounter, Log, hashes, lineage

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.keys import Shard
from infera_kvd.engine.options import Keep, Options
from infera_kvd.sglang.linking import REST_TIMES, SLOW_SECONDS, Layers, Linking, Rest
from infera_kvd.sglang.pages import page_key
from infera_kvd.sglang.store import PageStore

PAGE, ROW, LAYERS, SLOTS = 4, 8, 3, 64
NAMES = hashes(8)


class Rank:
    """One rank of an engine: K and V of some layers as bytes."""

    def __init__(self, client, *, alone=True, stores=True, queue=100, drain=WAIT_SECONDS):
        self.memory = [[bytearray(SLOTS * ROW) for _ in range(2)] for _ in range(LAYERS)]
        self.counters = Counters()
        layers = Layers([[(memoryview(one), ROW) for one in layer] for layer in self.memory], PAGE)
        daemon = Daemon([client], self.counters, Log())
        pages = PageStore(daemon, Shard("m", "c", layers.page_bytes), Keep(), PAGE, self.counters, lineage)
        options = Options(save_queue_blocks=queue, save_drain_seconds=drain)
        self.done = LayerCounter(LAYERS)
        self.linking = Linking(
            pages,
            layers,
            PAGE,
            options,
            Keep(),
            self.counters,
            self.done,
            alone=alone,
            stores=stores,
            rest=Rest(lambda: 0.0),
        )

    def fill(self):
        """Different bytes everywhere."""
        for number, layer in enumerate(self.memory):
            for half, memory in enumerate(layer):
                memory[:] = bytes((number * 91 + half * 53 + i * 7) % 251 for i in range(len(memory)))

    def page(self, number):
        """All bytes of a page, layer after layer."""
        span = slice(number * PAGE * ROW, (number + 1) * PAGE * ROW)
        return b"".join(bytes(memory[span]) for layer in self.memory for memory in layer)

    def wait(self, count):
        """Until so many offloads are through; their results."""
        assert self.linking._saver.drain(WAIT_SECONDS)
        assert self.linking.completed() == count
        return [self.linking.pop() for _ in range(count)]


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def ranks(client):
    made = []

    def make(**options):
        made.append(Rank(client, **options))
        return made[-1]

    yield make
    for rank in made:
        rank.linking.close()


def slots(*pages):
    return [slot for page in pages for slot in range(page * PAGE, (page + 1) * PAGE)]


def stored(rank, count=4):
    """The first pages of a rank under `NAMES`."""
    rank.fill()
    assert rank.linking.offload(NAMES[:count], slots(*range(count)))
    assert rank.wait(1) == [True]


def test_pages_come_back_layer_by_layer_to_other_places(ranks):
    first, second = ranks(), ranks()
    stored(first)
    assert second.linking.lookup(NAMES) == [1, 2, 3, 4]
    assert second.linking.load("a", NAMES[:3], slots(9, 2, 5))
    assert second.linking.load("b", NAMES[3:4], slots(0))
    index = second.linking.start()
    assert second.done.finish(index)
    assert second.done.events == [("complete", index, layer) for layer in range(LAYERS)]
    for place, origin in ((9, 0), (2, 1), (5, 2), (0, 3)):
        assert second.page(place) == first.page(origin)
    assert second.page(1) == bytes(len(second.page(1)))
    assert second.linking.start() == -1


def test_what_is_pinned_is_loaded_whatever_becomes_of_the_daemon(client, ranks):
    first, second = ranks(), ranks()
    stored(first)
    assert second.linking.load("a", NAMES[:4], slots(4, 5, 6, 7))
    client.values.clear()
    client.trouble = "gone"
    assert second.done.finish(second.linking.start())
    assert second.page(4) == first.page(0)


def test_alone_a_lost_page_is_computed(client, ranks):
    rank = ranks()
    stored(rank)
    assert rank.linking.lookup(NAMES) == [1, 2, 3, 4]
    del client.values[("m", "c", page_key(NAMES[1]))]
    assert not rank.linking.load("a", NAMES[:4], slots(4, 5, 6, 7))
    assert rank.linking.start() == -1
    assert rank.counters.totals()["load_failed_blocks"] == 3


def test_among_several_ranks_a_lost_page_fails_the_batch_because_all_have_to_agree(client, ranks):
    rank = ranks(alone=False)
    stored(rank)
    client.trouble = "gone"
    assert rank.linking.load("a", NAMES[:4], slots(4, 5, 6, 7))
    index = rank.linking.start()
    assert not rank.done.finish(index)
    assert rank.done.events == [("fail", index, "pages were gone between look-up and load")]


@pytest.mark.parametrize("odd", [b"", b"short", b"x" * 1000])
def test_odd_values_are_misses(client, ranks, odd):
    rank = ranks()
    stored(rank)
    client.values[("m", "c", page_key(NAMES[2]))] = odd
    assert rank.linking.lookup(NAMES) == [1, 2]
    assert not rank.linking.load("a", NAMES[:4], slots(4, 5, 6, 7))


@pytest.mark.parametrize("odd", [[0, 1, 2], [1, 2, 3, 4], [0, 1, 3, 2], slots(0, 1)])
def test_slots_that_are_not_the_pages_are_refused(ranks, odd):
    rank = ranks(alone=False)
    assert not rank.linking.load("a", NAMES[:1], odd)
    assert not rank.linking.offload(NAMES[:1], odd)
    assert rank.linking.completed() == 0


def test_a_load_can_be_given_up_before_it_starts(ranks):
    rank = ranks()
    stored(rank)
    assert rank.linking.load("a", NAMES[:1], slots(4))
    assert rank.linking.cancel("a")
    assert not rank.linking.cancel("a")
    assert rank.linking.start() == -1


def test_results_of_offloads_come_in_order(client, ranks):
    rank = ranks()
    client.refused = {page_key(NAMES[1])}
    for number in range(3):
        assert rank.linking.offload([NAMES[number]], slots(number))
    assert rank.wait(3) == [True, False, True]


def test_a_full_queue_drops_and_says_so(client, ranks):
    rank = ranks(queue=2)
    gate = threading.Event()
    client.before = lambda name: gate.wait(WAIT_SECONDS)
    assert rank.linking.offload(NAMES[:1], slots(0))
    while not rank.linking._saver._copying:
        pass
    assert rank.linking.offload(NAMES[1:6], slots(1, 2, 3, 4, 5))
    assert rank.linking.completed() == 0
    gate.set()
    assert rank.wait(2) == [True, False]
    assert rank.counters.totals()["save_dropped_blocks"] == 3


def test_a_rank_whose_bytes_another_stores_has_nothing_to_wait_for(client, ranks):
    rank = ranks(stores=False)
    assert rank.linking.offload(NAMES[:2], slots(0, 1))
    assert rank.linking.completed() == 1
    assert rank.linking.pop() is True
    assert client.values == {}


def test_while_the_daemon_is_away_nothing_is_found_and_offloads_fail(client, ranks):
    rank = ranks()
    client.trouble = "gone"
    assert rank.linking.lookup(NAMES) == []
    assert rank.linking.offload(NAMES[:1], slots(0))
    assert rank.wait(1) == [False]


def test_a_reset_leaves_nothing_that_touches_the_pools(client, ranks):
    rank = ranks()
    stored(rank)
    gate, entered = threading.Event(), threading.Event()

    def stop(name):
        if name == "save":
            entered.set()
            assert gate.wait(WAIT_SECONDS)

    client.before = stop
    assert rank.linking.load("a", NAMES[:1], slots(4))
    assert rank.linking.offload(NAMES[4:5], slots(4))
    assert entered.wait(WAIT_SECONDS)
    assert rank.linking.offload(NAMES[5:6], slots(5))
    resetting = threading.Thread(target=rank.linking.reset)
    resetting.start()
    # What waits is given up, what is being copied ends.
    while rank.counters.totals()["save_abandoned_blocks"] == 0:
        assert resetting.is_alive()
    gate.set()
    resetting.join(WAIT_SECONDS)
    assert not resetting.is_alive()
    assert rank.linking.completed() == 0
    assert rank.linking.start() == -1
    assert rank.done.events[-1] == ("reset",)
    assert ("m", "c", page_key(NAMES[5])) not in client.values


def test_after_a_reset_nothing_of_before_is_found_and_nothing_new_by_others(client, ranks):
    rank, other = ranks(), ranks()
    stored(rank)
    # For instance because its weights were replaced.
    rank.linking.reset()
    assert rank.linking.lookup(NAMES) == []
    assert rank.linking.offload(NAMES[4:6], slots(4, 5))
    assert rank.wait(1) == [True]
    assert rank.linking.lookup(NAMES[4:6]) == [1, 2]
    assert other.linking.lookup(NAMES[:4]) == [1, 2, 3, 4]
    assert other.linking.lookup(NAMES[4:6]) == []


def test_the_end_stores_what_is_waiting(client):
    rank = Rank(client)
    rank.linking.offload(NAMES[:4], slots(0, 1, 2, 3))
    rank.linking.close()
    assert len(client.values) == 4
    assert not any(thread.name.startswith("infera-kvd") for thread in threading.enumerate())


def test_slow_questions_are_followed_by_a_rest():
    now = [0.0]

    def slow():
        now[0] += 1.0
        return "answer"

    def quick():
        now[0] += SLOW_SECONDS / 2
        return "answer"

    rest = Rest(lambda: now[0])
    assert rest.ask(quick, "none") == "answer"
    assert rest.ask(slow, "none") == "answer"
    assert rest.ask(slow, "none") == "none"
    now[0] += REST_TIMES + 0.1
    assert rest.ask(quick, "none") == "answer"
    assert rest.ask(quick, "none") == "answer"

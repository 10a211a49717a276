"""What the scheduler's half decides, case by case; `test_engine.py` has the long runs."""

import pytest
from engine import BLOCK_TOKENS, Request
from stand_ins import Log

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.keys import Names
from infera_kvd.engine.options import Keep
from infera_kvd.vllm.plan import ANSWER_SECONDS, Planner, Step
from infera_kvd.vllm.speed import Speed


class Asked:
    """A planner with a store that has everything up to `found` blocks, and a clock that is set by hand.

    Block after block takes `block_seconds` more to be loaded.
    """

    def __init__(self, found=1000, keep=None, block_seconds=0.0, router_hashes=None):
        self.found = found
        self.block_seconds = block_seconds
        self.asked = []
        self.now = 0.0
        self.counters = Counters()
        self.log = Log()
        self.speed = Speed()
        keep = keep or Keep()
        self.planner = Planner(
            BLOCK_TOKENS,
            Names(),
            self._ready,
            lambda request: keep,
            self.speed,
            self.counters,
            self.log,
            lambda: self.now,
            router_hashes,
        )

    def computes(self, block_seconds):
        """From here on a block takes so long to be computed."""
        self.speed.planned(64, self.now)
        self.speed.ended(self.now + block_seconds * 64 / BLOCK_TOKENS)

    def _ready(self, hashes, first, end):
        self.asked.append(list(hashes[first:end]))
        return [self.block_seconds * (i + 1) for i in range(min(self.found, end - first))]


def request(tokens):
    """A request with a prompt of so many tokens."""
    return Request("r", list(range(tokens)), 4)


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (100, 24)])
def test_the_last_token_is_never_loaded(tokens, blocks):
    assert Asked().planner.matched_tokens(request(tokens), 0) == blocks * BLOCK_TOKENS


def test_only_what_is_behind_the_computed_tokens_is_asked_for():
    asked, one = Asked(found=2), request(21)
    assert asked.planner.matched_tokens(one, 8) == 8
    assert asked.asked == [one.block_hashes[2:5]]


def test_computed_tokens_inside_a_block_are_left_to_the_engine():
    assert Asked().planner.matched_tokens(request(21), 6) == 0


def test_an_answer_is_remembered_for_a_while_and_for_its_range():
    asked, one = Asked(), request(21)
    for _ in range(5):
        asked.planner.matched_tokens(one, 0)
    assert len(asked.asked) == 1
    asked.planner.matched_tokens(one, 4)
    assert len(asked.asked) == 2
    asked.now += ANSWER_SECONDS
    asked.planner.matched_tokens(one, 4)
    assert len(asked.asked) == 3


def test_a_load_names_hashes_and_blocks_behind_the_local_ones():
    asked, one = Asked(), request(13)
    assert asked.planner.matched_tokens(one, 4) == 8
    asked.planner.allocated(one, [7, 8, 9], 8)
    step = asked.planner.step([], [])
    (load,) = step.loads
    assert load.blocks == ((one.block_hashes[1], 8), (one.block_hashes[2], 9))
    assert step.written == {8, 9}
    assert asked.planner.step([], []) == Step()


def test_after_a_load_that_failed_at_once_nothing_is_asked_again():
    asked, one = Asked(), request(13)
    asked.planner.matched_tokens(one, 0)
    asked.planner.allocated(one, [1, 2, 3], 12)
    asked.planner.step([], [])
    assert asked.planner.matched_tokens(one, 0) == 0
    assert asked.planner.matched_tokens(one, 0) == 0


def test_a_request_that_ends_while_it_loads_is_not_held_twice():
    asked, one = Asked(), request(13)
    asked.planner.matched_tokens(one, 0)
    asked.planner.allocated(one, [1, 2, 3], 12)
    asked.planner.step([], [])
    assert asked.planner.finished(one, [1, 2, 3]) is False


def run_to(asked, one, computed, in_flight=0):
    """The request starts with nothing and has come so far."""
    asked.planner.matched_tokens(one, 0)
    asked.planner.allocated(one, list(range(10, 20)), 0)
    asked.planner.step([("r", list(range(10, 20)), 0)], [])
    one.num_computed_tokens, one.num_in_flight_tokens = computed, in_flight


def test_only_full_blocks_of_finished_steps_are_saved_and_each_once():
    asked, one = Asked(found=0), request(22)
    run_to(asked, one, 22, in_flight=8)
    (save,) = asked.planner.step([], [("r", [])]).saves
    hashes = one.block_hashes
    assert save.blocks == ((hashes[0], None, 10), (hashes[1], hashes[0], 11), (hashes[2], hashes[1], 12))
    assert asked.planner.step([], [("r", [])]).saves == ()
    one.num_in_flight_tokens = 0
    (save,) = asked.planner.step([], [("r", [])]).saves
    assert [block for _, _, block in save.blocks] == [13, 14]


def test_the_rest_is_saved_at_the_end_and_its_memory_held():
    asked, one = Asked(found=0), request(9)
    run_to(asked, one, 9)
    assert asked.planner.finished(one, [10, 11, 12]) is True
    step = asked.planner.step([], [])
    assert [block for _, _, block in step.saves[0].blocks] == [10, 11]
    assert step.held == {"r"}
    assert asked.planner.finished(one, []) is False


def test_nothing_is_held_for_a_request_that_saves_nothing():
    asked, one = Asked(found=0), request(3)
    run_to(asked, one, 3)
    assert asked.planner.finished(one, [10]) is False


def test_what_must_not_be_stored_is_not():
    asked, one = Asked(found=0, keep=Keep(stored=False)), request(22)
    run_to(asked, one, 22)
    assert asked.planner.step([], [("r", [])]).saves == ()
    assert asked.planner.finished(one, list(range(10, 16))) is False


def test_how_long_and_for_whom_goes_along():
    asked, one = Asked(found=0, keep=Keep("short", 5.0)), request(5)
    one.cache_salt = "pepper"
    run_to(asked, one, 5)
    (save,) = asked.planner.step([], [("r", [])]).saves
    assert (save.retention, save.ttl_seconds, save.salt, save.lora) == ("short", 5.0, "pepper", None)


def last_of(tokens, tokens_per_block, *, parent, lora, salt):
    """Stands for the router's hashes: in a name is what it was made of."""
    names = []
    for end in range(tokens_per_block, len(tokens) + 1, tokens_per_block):
        parent = (parent, tokens[end - 1]) if parent else (lora, salt, tokens[end - 1])
        names.append(parent)
    return names


def test_routers_are_told_their_own_names_of_blocks():
    asked, one = Asked(found=0, router_hashes=last_of), request(17)
    one.cache_salt = "pepper"
    run_to(asked, one, 12)
    (save,) = asked.planner.step([], [("r", [])]).saves
    first, second, third = save.router_hashes
    assert (first, second, third) == ((None, "pepper", 3), (first, 7), (second, 11))
    # Those of blocks that were saved before are not made again, but stand before the next.
    one.num_computed_tokens = 16
    (save,) = asked.planner.step([], [("r", [])]).saves
    assert save.router_hashes == ((third, 15),)


@pytest.mark.parametrize("what", [{"mm_features": ["an image"]}, {"prompt_embeds": "numbers"}])
def test_routers_are_told_no_names_where_tokens_are_not_all(what):
    asked, one = Asked(found=0, router_hashes=last_of), request(9)
    vars(one).update(what)
    run_to(asked, one, 9)
    (save,) = asked.planner.step([], [("r", [])]).saves
    assert (len(save.blocks), save.router_hashes) == (2, ())


def test_routers_are_told_no_names_once_an_engine_has_its_own():
    asked, one = Asked(found=0, router_hashes=last_of), request(9)
    assert asked.planner.reset()
    run_to(asked, one, 9)
    (save,) = asked.planner.step([], [("r", [])]).saves
    assert (len(save.blocks), save.router_hashes) == (2, ())


def load(asked, one, blocks):
    """The engine asks and makes room for what it is told to load; how many blocks that are."""
    tokens = asked.planner.matched_tokens(one, 0)
    asked.planner.allocated(one, list(range(blocks)), tokens)
    return tokens // BLOCK_TOKENS


def test_what_is_computed_sooner_is_not_loaded_and_counted():
    asked = Asked(block_seconds=0.2)
    assert load(asked, request(21), 6) == 5, "as long as nothing was measured, everything is loaded"
    asked.planner.step([("r", list(range(6)), 20)], [])
    asked.computes(0.1)
    assert load(asked, request(21), 6) == 0
    assert asked.counters.take() == {"load_skipped_blocks": 5}
    asked.block_seconds = 0.0
    assert load(asked, request(21), 6) == 5, "host memory has it"


def test_an_answer_that_is_asked_for_again_and_again_is_counted_once():
    asked, one = Asked(block_seconds=0.2), request(21)
    asked.computes(0.1)
    for _ in range(3):
        assert asked.planner.matched_tokens(one, 0) == 0
    asked.planner.allocated(one, list(range(6)), 0)
    assert asked.counters.take() == {"load_skipped_blocks": 5}


def test_a_load_waits_until_a_thread_is_free():
    asked = Asked(block_seconds=1.0)
    for name in ("r", "s"):
        one = request(21)
        one.request_id = name
        assert load(asked, one, 6) == 5
    asked.computes(0.5)
    asked.block_seconds = 0.0
    third = request(21)
    third.request_id = "t"
    assert load(asked, third, 6) == 0, "5 seconds for what takes 2.5"
    asked.planner.step([("r", list(range(6)), 20), ("s", list(range(6)), 20)], [])
    fourth = request(21)
    fourth.request_id = "u"
    assert load(asked, fourth, 6) == 5, "they were done sooner than expected"


def test_one_slow_load_keeps_no_other():
    asked = Asked(block_seconds=1.0)
    assert load(asked, request(21), 6) == 5
    asked.computes(0.5)
    asked.block_seconds = 0.0
    second = request(21)
    second.request_id = "s"
    assert load(asked, second, 6) == 5


def test_after_a_reset_blocks_have_other_names_and_nothing_begun_before_is_stored():
    asked = Asked(found=0)
    old = request(9)
    assert asked.planner.matched_tokens(old, 0) == 0
    asked.planner.allocated(old, [1, 2, 3], 0)
    asked.planner.step([("r", [1, 2, 3], 0)], [])
    assert asked.planner.reset()
    old.num_computed_tokens = 9
    assert not asked.planner.finished(old, [1, 2, 3])
    new = request(9)
    asked.planner.matched_tokens(new, 0)
    asked.planner.allocated(new, [1, 2, 3], 0)
    asked.planner.step([("r", [1, 2, 3], 0)], [])
    new.num_computed_tokens = 9
    assert asked.planner.finished(new, [1, 2, 3])
    (save,) = asked.planner.step([], []).saves
    names = [name for name, _, _ in save.blocks]
    assert not set(names) & set(new.block_hashes)
    assert [parent for _, parent, _ in save.blocks] == [None, *names[:-1]]


def test_a_reset_comes_too_early_while_a_request_loads():
    asked = Asked()
    loading = request(9)
    asked.planner.matched_tokens(loading, 0)
    asked.planner.allocated(loading, [1, 2], 8)
    loading.num_computed_tokens = 8
    assert not asked.planner.reset()
    step = asked.planner.step([], [])
    assert [name for name, _ in step.loads[0].blocks] == loading.block_hashes[:2]
    assert not asked.planner.reset(), "it has not ended"
    asked.planner.step([("r", [1, 2, 3], 8)], [])
    assert asked.planner.reset()


def test_a_request_that_waits_after_its_load_failed_keeps_no_reset():
    asked, failed = Asked(), request(9)
    asked.planner.matched_tokens(failed, 0)
    asked.planner.allocated(failed, [1, 2], 8)
    failed.num_computed_tokens = 8
    asked.planner.step([], [])
    failed.num_computed_tokens = 0
    assert asked.planner.reset(), "the engine has taken its blocks back"


def test_what_another_connector_is_still_loading_is_not_saved():
    asked, one = Asked(found=0), request(21)
    asked.planner.matched_tokens(one, 0)
    asked.planner.allocated(one, [1, 2, 3], 0)
    assert asked.planner.step([], []) == Step()
    # The engine counts on what the other loads, but nothing was computed from it yet.
    one.num_computed_tokens = 12
    assert asked.planner.finished(one, [1, 2, 3]) is False
    assert asked.planner.step([], []).saves == ()


def test_what_another_connector_loads_after_a_preemption_is_not_saved():
    asked, one = Asked(found=0), request(21)
    run_to(asked, one, 4)
    one.num_computed_tokens = 0
    asked.planner.matched_tokens(one, 0)
    asked.planner.allocated(one, [1, 2, 3], 0)
    one.num_computed_tokens = 12
    assert asked.planner.finished(one, [1, 2, 3]) is False
    assert asked.planner.step([], []).saves == ()


def test_blocks_of_a_preempted_request_are_let_go_of():
    asked, one = Asked(found=0), request(22)
    run_to(asked, one, 22)
    assert asked.planner.step([], [("r", [])]).saves
    # From here on anybody may write to them, another connector too.
    assert asked.planner.step([], [], preempted={"r", "unknown"}).written == set(range(10, 20))


@pytest.mark.parametrize(
    ("asks", "block_ids", "tokens"),
    [(False, [7, 8, 9], 8), (True, [7, 8, 9, 6], 16), (True, [7, 8, 9], 6), (True, [7, 8], 12)],
    ids=["never asked", "more than it was told of", "no whole blocks", "more than it has blocks for"],
)
def test_tokens_that_the_engine_was_not_told_of_are_computed_and_that_is_said_once(asks, block_ids, tokens):
    asked, one = Asked(), request(13)
    for _ in range(2):
        if asks:
            assert asked.planner.matched_tokens(one, 0) == 12
        asked.planner.allocated(one, block_ids, tokens)
        (load,) = asked.planner.step([], []).loads
        assert load.blocks == tuple((None, block_id) for block_id in block_ids), "any of them may hold nothing"
        assert asked.planner.matched_tokens(one, 0) == 0, "it waits again, to be computed"
        asked.planner.finished(one, [])
    assert [level for level, _ in asked.log.lines] == ["error"]
    assert "request r" in asked.log.lines[0][1]


def test_a_load_may_take_as_long_as_computing():
    asked = Asked()
    assert load(asked, request(21), 6) == 5
    (first,) = asked.planner.step([("r", list(range(6)), 20)], []).loads
    assert first.seconds is None, "nothing was measured"
    asked.computes(0.5)
    assert load(asked, request(21), 6) == 5
    (second,) = asked.planner.step([], []).loads
    assert second.seconds == pytest.approx(2.5)


def test_nothing_is_loaded_for_a_request_that_must_compute_its_whole_prompt():
    asked, one = Asked(), request(21)
    one.skip_reading_prefix_cache = True
    assert asked.planner.matched_tokens(one, 0) == 0
    assert asked.asked == []

"""What the scheduler's half decides, case by case; `test_engine.py` has the long runs."""

import pytest
from engine import BLOCK_TOKENS, Request

from infera_kvd.engine.options import Keep
from infera_kvd.vllm.plan import ANSWER_SECONDS, Planner, Step


class Asked:
    """A planner with a store that has everything up to `found` blocks, and a clock that is set by hand."""

    def __init__(self, found=1000, keep=None):
        self.found = found
        self.asked = []
        self.now = 0.0
        self.planner = Planner(BLOCK_TOKENS, self._locate, lambda request: keep or Keep(), lambda: self.now)

    def _locate(self, hashes):
        self.asked.append(list(hashes))
        return min(self.found, len(hashes))


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

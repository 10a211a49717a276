"""What steps say about the speed of computing, and what they do not."""

import collections
import random

import pytest

from infera_kvd.vllm.speed import DOUBTS_MAX, LOADS_TRUSTED, STEPS, Speed, prompt_tokens


class Engine:
    """Steps on a clock of their own: each computes when the one before it is done."""

    def __init__(self):
        self.speed = Speed()
        self.now = 0.0
        self.free_at = 0.0
        self.running = collections.deque()

    def plan(self, tokens, took):
        """A step that computes for `took` seconds begins as soon as it can."""
        self.speed.planned(tokens, self.now)
        self.free_at = max(self.free_at, self.now) + took
        self.running.append(self.free_at)

    def end(self):
        """The oldest step's outcome is taken in."""
        self.now = max(self.now, self.running.popleft())
        self.speed.ended(self.now)

    def step(self, tokens, took):
        """One after the other."""
        self.plan(tokens, took)
        self.end()


def test_nothing_is_known_before_a_prompt_was_computed():
    engine = Engine()
    assert engine.speed.seconds(100) is None
    engine.step(0, 1.0)
    assert engine.speed.seconds(100) is None


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_time_of_computing_is_found_whatever_lies_between(depth):
    for seed in range(200):
        choose, engine = random.Random(seed), Engine()
        for _ in range(40):
            # The engine may have nothing to do for any time, but only when no step is under way.
            while engine.running and (len(engine.running) >= depth or choose.random() < 0.3):
                engine.end()
            if not engine.running:
                engine.now += choose.choice([0.0, 0.001, 100.0])
            is_prompt = choose.random() < 0.6
            engine.plan(256 if is_prompt else 0, 0.256 if is_prompt else choose.random())
        while engine.running:
            engine.end()
        assert engine.speed.seconds(256) == pytest.approx(0.256), seed


def test_a_step_that_stalled_changes_nothing():
    engine = Engine()
    for took in (0.1, 0.1, 5.0, 0.1):
        engine.step(100, took)
    assert engine.speed.seconds(100) == pytest.approx(0.1)


def test_another_speed_is_believed_after_some_steps():
    engine = Engine()
    for took in [0.1] * STEPS + [0.4] * (STEPS // 2 + 1):
        engine.step(100, took)
    assert engine.speed.seconds(100) == pytest.approx(0.4)


def test_steps_of_like_size_are_asked():
    engine = Engine()
    engine.step(64, 0.064)
    engine.step(2048, 0.2048)
    assert engine.speed.seconds(70) == pytest.approx(0.07)
    assert engine.speed.seconds(3000) == pytest.approx(0.3)


def test_a_figure_that_nothing_confirms_is_doubted_and_replaced():
    engine = Engine()
    for _ in range(STEPS):
        engine.step(100, 8.0)
    figures = []
    for _ in range(10 * LOADS_TRUSTED):
        figures.append(engine.speed.seconds(100))
        engine.speed.loaded()
    assert figures[LOADS_TRUSTED - 1 : LOADS_TRUSTED + 1] == [pytest.approx(8.0), pytest.approx(4.0)]
    assert figures[-1] == pytest.approx(8.0 / 2**DOUBTS_MAX)
    engine.step(100, 0.1)
    assert engine.speed.seconds(100) == pytest.approx(0.1), "the old ones do not count any more"


def test_outcomes_that_nobody_planned_are_no_harm():
    speed = Speed()
    speed.ended(1.0)
    assert speed.seconds(1) is None


@pytest.mark.parametrize(
    ("counts", "tokens"),
    [
        ([], 0),
        ([1] * 500, 0),
        ([63], 0),
        ([64], 64),
        ([2048, 1, 1, 1], 2048),
        ([64] + [1] * 64, 64),
        ([64] + [1] * 65, 0),
        ([40, 40, 4, 4], 80),
        ([15] * 10, 0),
    ],
)
def test_only_steps_that_mostly_compute_prompts_count(counts, tokens):
    assert prompt_tokens(counts, sum(counts)) == tokens

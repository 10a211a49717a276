"""Answers come a step late, all of a step's keys in one question, and what failed stays missing until it is stored."""

import threading

import pytest

from infera_kvd.vllm import tier_lookups
from infera_kvd.vllm.tier_lookups import ANSWER_SECONDS, WAITING_KEYS_MAX, Lookups

WAIT_SECONDS = 30
KEYS = [b"key %d" % number for number in range(5)]


class Asked:
    """A daemon that has some keys, and answers when it is let."""

    def __init__(self):
        self.stored = set()
        self.questions = []
        self.fault = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.answered = threading.Semaphore(0)

    def __call__(self, keys):
        assert self.may_answer.wait(WAIT_SECONDS)
        self.questions.append(keys)
        try:
            if self.fault:
                raise self.fault
            return [key in self.stored for key in keys]
        finally:
            self.answered.release()


class Clock:
    """Seconds by hand."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def asked():
    return Asked()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lookups(asked, clock):
    made = Lookups(asked, clock)
    yield made
    asked.may_answer.set()
    made.close()


def step(lookups, asked, keys):
    """One step of an engine that wants `keys`, and the daemon's answer after it."""
    answers = [lookups.answer(key) for key in keys]
    lookups.step_ends()
    if None in answers:
        assert asked.answered.acquire(timeout=WAIT_SECONDS)
        # The answer is handed over behind the semaphore.
        deadline = threading.Event()
        while not lookups._answers and not deadline.wait(0.001):
            pass
    return answers


def test_a_step_is_one_question_and_the_next_one_has_the_answers(lookups, asked):
    asked.stored = {KEYS[0], KEYS[1]}
    assert step(lookups, asked, KEYS) == [None] * 5
    assert step(lookups, asked, KEYS) == [True, True, False, False, False]
    assert asked.questions == [KEYS]


def test_keys_of_several_requests_are_asked_once(lookups, asked):
    step(lookups, asked, [*KEYS[:3], *KEYS[1:4]])
    assert asked.questions == [KEYS[:4]]


def test_what_is_being_asked_is_not_asked_again(lookups, asked):
    asked.may_answer.clear()
    for _ in range(3):
        assert lookups.answer(KEYS[0]) is None
        lookups.step_ends()
    asked.may_answer.set()
    assert asked.answered.acquire(timeout=WAIT_SECONDS)
    assert asked.questions == [[KEYS[0]]]


def test_the_scheduler_never_waits_for_the_daemon(lookups, asked):
    asked.may_answer.clear()
    for key in KEYS:
        assert lookups.answer(key) is None
        lookups.step_ends()


@pytest.mark.parametrize("is_stored", [True, False])
def test_answers_are_forgotten_after_a_while(lookups, asked, clock, is_stored):
    asked.stored = set(KEYS) if is_stored else set()
    step(lookups, asked, KEYS)
    assert step(lookups, asked, KEYS) == [is_stored] * 5
    clock.now += ANSWER_SECONDS
    lookups.step_ends()
    assert step(lookups, asked, KEYS) == [None] * 5
    assert len(asked.questions) == 2


def test_an_answer_lasts_a_whole_step_however_long_steps_take(lookups, asked, clock):
    asked.stored = set(KEYS)
    for _ in range(3):
        clock.now += 100 * ANSWER_SECONDS
        step(lookups, asked, KEYS)
        clock.now += 100 * ANSWER_SECONDS
        assert [lookups.answer(key) for key in KEYS] == [True] * 5
        clock.now += 100 * ANSWER_SECONDS
        lookups.step_ends()


def test_what_failed_is_missing_until_it_is_stored(lookups, asked, clock):
    asked.stored = set(KEYS)
    step(lookups, asked, KEYS)
    lookups.fail(KEYS[:2])
    for _ in range(3):
        assert step(lookups, asked, KEYS[:2]) == [False, False]
        clock.now += 2 * ANSWER_SECONDS
    assert lookups.has_failed(KEYS[0])
    lookups.stored(KEYS[:1])
    assert not lookups.has_failed(KEYS[0])
    assert step(lookups, asked, KEYS[:2]) == [None, False]
    assert step(lookups, asked, KEYS[:2]) == [True, False]


def test_an_answer_on_its_way_does_not_undo_a_failure(lookups, asked):
    asked.stored = set(KEYS)
    asked.may_answer.clear()
    assert lookups.answer(KEYS[0]) is None
    lookups.step_ends()
    lookups.fail(KEYS[:1])
    asked.may_answer.set()
    assert asked.answered.acquire(timeout=WAIT_SECONDS)
    assert step(lookups, asked, KEYS[:1]) == [False]


def test_what_was_just_stored_is_not_called_missing(lookups, asked):
    step(lookups, asked, KEYS)
    assert lookups.answer(KEYS[0]) is False
    lookups.stored(KEYS)
    assert lookups.answer(KEYS[0]) is None


def test_a_question_that_raises_is_a_miss(lookups, asked):
    asked.fault = RuntimeError("gone")
    step(lookups, asked, KEYS)
    assert step(lookups, asked, KEYS) == [False] * 5
    assert lookups._thread.is_alive()


def test_too_many_keys_are_misses(lookups, asked):
    asked.may_answer.clear()
    keys = [b"%d" % number for number in range(WAITING_KEYS_MAX + 2)]
    assert [lookups.answer(key) for key in keys][-3:] == [None, False, False]
    lookups.step_ends()
    assert lookups.answer(keys[-1]) is False
    # Who waits already, waits on.
    assert lookups.answer(keys[0]) is None


def test_failures_that_are_remembered_are_bounded(lookups, monkeypatch):
    monkeypatch.setattr(tier_lookups, "FAILED_KEYS_MAX", 3)
    lookups.fail(KEYS)
    assert [lookups.has_failed(key) for key in KEYS] == [False, False, True, True, True]


def test_nothing_of_before_is_known_after_forgetting(lookups, asked):
    asked.stored = set(KEYS)
    step(lookups, asked, KEYS[:2])
    assert lookups.answer(KEYS[0]) is True
    lookups.fail(KEYS[1:2])
    asked.may_answer.clear()
    assert lookups.answer(KEYS[2]) is None
    lookups.step_ends()
    lookups.forget()
    asked.stored = set()
    asked.may_answer.set()
    assert asked.answered.acquire(timeout=WAIT_SECONDS)
    assert step(lookups, asked, KEYS[:3]) == [None] * 3
    assert step(lookups, asked, KEYS[:3]) == [False] * 3


def test_the_end_does_not_wait_for_questions_that_nobody_asked_yet(asked):
    lookups = Lookups(asked)
    assert lookups._thread.name == "infera-kvd-tier-lookup"
    asked.may_answer.clear()
    lookups.answer(KEYS[0])
    lookups.step_ends()
    lookups.answer(KEYS[1])
    lookups.step_ends()
    threading.Timer(0.05, asked.may_answer.set).start()
    lookups.close()
    assert not lookups._thread.is_alive()

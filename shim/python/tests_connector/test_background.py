"""Every job ends and is told once, and the end of the threads is not waited for longer than one part of a job takes."""

import threading
import time

import pytest

from infera_kvd.engine.background import Background

WAIT_SECONDS = 30


class Parts:
    """Jobs in parts: a job goes on until it is told not to, at most so long as no test takes."""

    def __init__(self):
        self.entered = threading.Semaphore(0)
        self.may_end = threading.Event()

    def do(self, job, goes_on):
        """The outcome: how it ended."""
        self.entered.release()
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if not goes_on():
                return f"{job} ended early"
            if self.may_end.wait(0.001):
                return f"{job} done"
        return f"{job} was never told"

    def wait_until_entered(self):
        assert self.entered.acquire(timeout=WAIT_SECONDS)


def ended(background, count):
    """The next jobs to end."""
    found, deadline = [], time.monotonic() + WAIT_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += background.take_ended()
        time.sleep(0.001)
    return found


def test_jobs_are_done_in_order_and_told_once():
    background = Background(lambda job, goes_on: -job, "test")
    for job in range(1, 9):
        background.add(job)
    assert ended(background, 8) == [(job, -job) for job in range(1, 9)]
    background.close()
    assert background.take_ended() == []
    background.add(9)
    assert background.take_ended() == [(9, None)], "there is nobody to do it"


def test_a_job_that_raises_ends_and_the_next_is_done():
    def do(job, goes_on):
        return 1 // job

    background = Background(do, "test")
    for job in (0, 1):
        background.add(job)
    assert ended(background, 2) == [(0, None), (1, 1)]
    background.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_end_waits_for_one_part_only(threads):
    parts = Parts()
    background = Background(parts.do, "infera-kvd-test", threads)
    for job in range(threads + 2):
        background.add(job)
    for _ in range(threads):
        parts.wait_until_entered()
    background.close()
    outcomes = dict(background.take_ended())
    assert outcomes == {job: f"{job} ended early" if job < threads else None for job in range(threads + 2)}
    assert not [thread for thread in threading.enumerate() if thread.name == "infera-kvd-test"]


def test_a_drain_in_time_ends_nothing_early_and_one_that_is_late_goes_on_afterwards():
    parts = Parts()
    background = Background(parts.do, "test")
    background.add(1)
    parts.wait_until_entered()
    threading.Timer(0.1, parts.may_end.set).start()
    background.drain(WAIT_SECONDS)
    assert background.take_ended() == [(1, "1 done")]
    parts.may_end.clear()
    background.add(2)
    parts.wait_until_entered()
    background.add(3)
    background.drain(0.01)
    assert background.take_ended() == [(3, None), (2, "2 ended early")]
    parts.may_end.set()
    background.add(4)
    assert ended(background, 1) == [(4, "4 done")]
    background.close()

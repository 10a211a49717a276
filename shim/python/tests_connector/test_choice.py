"""What is loaded and what is computed: against every other way to divide them."""

import itertools
import random

import pytest

from infera_kvd.vllm.choice import MARGIN, worth_loading


def total(ready, compute_seconds, ahead, count):
    """When everything is there if `count` blocks are loaded first, and computing counts less by the margin."""
    loading = max(ready[count - 1], ahead) if count else 0.0
    return loading + (len(ready) - count) * compute_seconds * (1 - MARGIN)


def cases(seeds):
    """Times as they come: steps, jumps, nothing; in eighths, so that sums are exact."""
    for seed in range(seeds):
        choose = random.Random(seed)
        gaps = [choose.choice([0, 0, 1, 2, 9]) / 8 for _ in range(choose.randint(0, 12))]
        yield list(itertools.accumulate(gaps)), choose.choice([1, 2, 5, 40]) / 8, choose.choice([0, 0, 3, 30]) / 8


def test_no_other_division_is_better():
    for ready, compute_seconds, ahead in cases(5000):
        count = worth_loading(ready, compute_seconds, ahead)
        chosen = total(ready, compute_seconds, ahead, count)
        best = min(total(ready, compute_seconds, ahead, other) for other in range(len(ready) + 1))
        assert chosen == pytest.approx(best), (ready, compute_seconds, ahead, count)


def test_a_load_is_never_slower_than_computing():
    for ready, compute_seconds, ahead in cases(5000):
        count = worth_loading(ready, compute_seconds, ahead)
        if count:
            assert max(ready[count - 1], ahead) <= count * compute_seconds


def test_what_is_in_host_memory_is_loaded_whatever_computing_takes():
    assert worth_loading([0.0] * 7, 1e-9) == 7
    assert worth_loading([0.0] * 7 + [1.0], 1e-9) == 7


def test_without_a_measure_everything_is_loaded():
    assert worth_loading([5.0, 1000.0], None) == 2


def test_nothing_stored_is_nothing_loaded():
    assert worth_loading([], 1.0) == 0

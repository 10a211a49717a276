"""Random calls, held against a naive store after every step: answers, order of eviction, and all nine figures."""

import random

import pytest
from oracle import CLASSES, Oracle

BUDGET = 2000
STEPS = 700


class Walk:
    """One random walk through the calls of a client."""

    def __init__(self, client, seed):
        self.client = client
        self.random = random.Random(seed)
        self.oracle = Oracle(BUDGET)

    def place(self):
        """A namespace and a key, few enough to meet again."""
        chance = self.random
        return chance.choice(["", "m"]), chance.choice(["", "c"]), b"%d" % chance.randrange(12)

    def value(self):
        """Now and then empty, now and then larger than the store."""
        size = self.random.choice([0, 1, 60, 200, 200, 300, 700, BUDGET, BUDGET + 1])
        return self.random.randbytes(size)

    def retention(self):
        """A class."""
        return self.random.choice(list(CLASSES))

    def step(self):
        """One call."""
        calls = [self.set] * 8 + [self.get] * 6 + [self.batch_set, self.batch_get, self.exists] * 2
        self.random.choice([*calls, self.clear])()
        assert self.client.stats() == self.oracle.stats()

    def set(self):
        model, compat_key, key = self.place()
        value, retention = self.value(), self.retention()
        lives = self.random.random() > 0.05
        verdict = self.client.set(
            key,
            value,
            retention=retention,
            model=model,
            compat_key=compat_key,
            ttl_seconds=None if lives else 0,
        )
        assert verdict == self.oracle.set((model, compat_key, key), value, retention, lives)

    def batch_set(self):
        model, compat_key, _ = self.place()
        items = [(self.place()[2], self.value(), self.retention()) for _ in range(5)]
        verdicts = self.client.batch_set(items, model=model, compat_key=compat_key)
        expected = [
            self.oracle.set((model, compat_key, key), value, retention)
            for key, value, retention in items
        ]
        assert verdicts == expected

    def get(self):
        model, compat_key, key = self.place()
        hit = self.client.get(key, model=model, compat_key=compat_key)
        found = hit and (hit.value, hit.retention)
        assert found == self.oracle.get((model, compat_key, key))

    def batch_get(self):
        model, compat_key, _ = self.place()
        keys = [self.place()[2] for _ in range(6)]
        hits = self.client.batch_get(keys, model=model, compat_key=compat_key)
        found = [hit and (hit.value, hit.retention) for hit in hits]
        assert found == self.oracle.batch_get([(model, compat_key, key) for key in keys])

    def exists(self):
        model, compat_key, _ = self.place()
        keys = [self.place()[2] for _ in range(6)]
        present = self.client.exists(keys, model=model, compat_key=compat_key)
        assert present == [(model, compat_key, key) in self.oracle.rows for key in keys]

    def clear(self):
        model, compat_key, _ = self.place()
        if self.random.random() < 0.8:
            model = model or "m"
        dropped = self.client.clear(model=model, compat_key=compat_key)
        assert dropped == self.oracle.clear(model, compat_key)


@pytest.mark.parametrize("seed", range(6))
def test_random_calls_end_as_the_naive_store_says(start, seed):
    daemon = start(
        *("--max-bytes", str(BUDGET), "--shared-arena-bytes", "0", "--promise-window", "0s")
    )
    walk = Walk(daemon.client(), seed)
    for _ in range(STEPS):
        walk.step()
    assert walk.oracle.totals["evictions"] > 20


def test_negative_control_a_store_that_evicts_the_youngest_is_caught(start):
    daemon = start(
        *("--max-bytes", str(BUDGET), "--shared-arena-bytes", "0", "--promise-window", "0s")
    )
    walk = Walk(daemon.client(), 0)
    walk.oracle.clock = iter(range(10**6, 0, -1))
    with pytest.raises(AssertionError):
        for _ in range(STEPS):
            walk.step()

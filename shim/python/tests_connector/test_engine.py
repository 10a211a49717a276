"""Whole lives of the small engine: whatever fails, nothing wrong is stored and nothing wrong is read."""

import random

import pytest
from engine import RANKS, CheckedClient, Engine, Request
from stand_ins import Client, Log

from infera_kvd.engine import saver
from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.keys import Shard
from infera_kvd.engine.options import Options
from infera_kvd.vllm import plan, speed
from infera_kvd.vllm.scheduler import SchedulerHalf

SEEDS = 60


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch):
    """Steps of the small engine are a measure of its speed."""
    monkeypatch.setattr(speed, "TOKENS_MIN", 1)
    monkeypatch.setattr(speed, "PROMPT_TOKENS_MIN", 2)


def requests_of(choose, life):
    """Some requests with shared beginnings."""
    stems = [[choose.randrange(256) for _ in range(40)] for _ in range(3)]
    return [
        Request(
            f"{life}-{number}",
            choose.choice(stems)[: choose.randint(1, 40)] + [choose.randrange(256) for _ in range(choose.randint(1, 12))],
            choose.randint(0, 9),
        )
        for number in range(8)
    ]


def lives(seed, depth, *, lossy=True, count=3):
    """Several lives of an engine over one store; each rank's store loses some of what was located."""
    wrong = []
    clients = [CheckedClient(rank, wrong) for rank in range(RANKS)]
    engines = []
    for life in range(count):
        choose = random.Random(seed)  # The same requests in each life.
        schedule = random.Random(f"{seed} {life}")
        for rank, client in enumerate(clients):
            loss = random.Random(f"{seed} {life} {rank}")
            client.lost = lambda key, loss=loss: lossy and loss.random() < 0.1
            client.load_us = lambda key, loss=loss: loss.choice([0, 0, 100, 1000]) if lossy else 0
        engine = Engine(schedule, clients, blocks=schedule.randint(16, 30), depth=depth)
        engine.run(requests_of(choose, life))
        engines.append(engine)
    return wrong, engines


@pytest.mark.parametrize("depth", [1, 2])
def test_nothing_wrong_is_stored_or_read(depth):
    loaded = failed = skipped = 0
    for seed in range(SEEDS):
        wrong, engines = lives(seed, depth)
        assert wrong == [], seed
        assert [engine.wrong_reads for engine in engines] == [[], [], []], seed
        loaded += sum(engine.loaded_blocks for engine in engines)
        failed += sum(engine.failed_blocks for engine in engines)
        skipped += sum(engine.counters.totals()["load_skipped_blocks"] for engine in engines)
    assert loaded > 10 * SEEDS, "the store was of no use"
    assert failed > SEEDS, "the store lost nothing"
    assert skipped > SEEDS, "every load was worth its time"


def test_one_rank_loses_one_block_a_thousand_times():
    wrong, rounds = [], 1000
    clients = [CheckedClient(rank, wrong) for rank in range(RANKS)]
    tokens = list(range(41))
    Engine(random.Random(0), clients).run([Request("first", list(tokens), 0)])
    hashes = Request("", list(tokens), 0).block_hashes
    for number in range(rounds):
        choose = random.Random(number)
        lost, loser = choose.randrange(len(hashes)), choose.randrange(RANKS)
        for rank, client in enumerate(clients):
            client.lost = lambda key, rank=rank, lost=lost, loser=loser: rank == loser and key[:-4] == hashes[lost]
        engine = Engine(choose, clients, depth=choose.choice([1, 2]))
        engine.run([Request(f"round {number}", list(tokens), 1)])
        assert (wrong, engine.wrong_reads) == ([], []), number
        assert (engine.loaded_blocks, engine.failed_blocks) == (len(hashes), 1), number


def test_an_engine_that_breaks_its_own_order_computes(monkeypatch):
    allocated = plan.Planner.allocated

    def forgetful(self, request, block_ids, loaded_tokens):
        if loaded_tokens and choose.random() < 0.3:
            self._track(request).answer = None
        allocated(self, request, block_ids, loaded_tokens)

    monkeypatch.setattr(plan.Planner, "allocated", forgetful)
    said = 0
    for seed in range(SEEDS):
        choose = random.Random(f"{seed} order")
        wrong, engines = lives(seed, 1, lossy=False)
        assert wrong == [], seed
        assert [engine.wrong_reads for engine in engines] == [[], [], []], seed
        said += sum("was not told of" in text for engine in engines for _, text in engine.log.lines)
    assert said > SEEDS, "the order was kept"


RANK_SHARDS = [Shard("m", f"rank {rank}", 8) for rank in range(2)]


@pytest.mark.parametrize(
    ("shards", "served", "lines"),
    [
        (RANK_SHARDS, True, 0),
        ([*RANK_SHARDS[:1], None], False, 0),
        (RANK_SHARDS[:1], False, 1),
        ([], False, 1),
    ],
    ids=["all", "one is not used", "one is missing", "all are missing"],
)
def test_nothing_is_served_before_every_rank_has_said_what_it_stores(shards, served, lines):
    log = Log()
    half = SchedulerHalf(Daemon([Client()], Counters(), log), Options(), 4, Counters(), log)
    half.serve(shards, 2)
    assert half.is_idle is not served
    assert len(log.lines) == lines
    assert all(f"only {len(shards)} of 2 ranks" in text for _, text in log.lines)


def two_lives(change, layout="rank"):
    """A life that stores, then `change(client)` for each rank's client, then the same requests again."""
    wrong = []
    clients = [CheckedClient(rank, wrong) for rank in range(RANKS)]
    tokens = list(range(41))
    Engine(random.Random(0), clients).run([Request("first", list(tokens), 0)])
    for client in clients:
        change(client)
    engine = Engine(random.Random(1), clients, layout=layout)
    engine.run([Request(f"again {number}", list(tokens), 3) for number in range(3)])
    assert (wrong, engine.wrong_reads) == ([], [])
    return engine


def test_another_layout_or_model_finds_nothing_and_computes():
    assert two_lives(lambda client: None).loaded_blocks > 0
    assert two_lives(lambda client: None, layout="another").loaded_blocks == 0


def test_pages_of_another_size_are_one_line_and_computed():
    def lengthen(client):
        client.values = {key: value + b"!" for key, value in client.values.items()}

    engine = two_lives(lengthen)
    assert engine.loaded_blocks == 0
    lines = [text for _, text in engine.log.lines]
    assert 1 <= len(lines) <= 3 * RANKS, "one a connection"
    assert all("holds a block of 9 bytes where this engine has 8" in line for line in lines)


@pytest.mark.parametrize("trouble", ["unavailable: no such file: /run/kvd.sock", "unavailable: permission denied"])
def test_a_socket_that_cannot_be_used_is_one_line_a_connection_and_computed(trouble):
    def forbid(client):
        client.trouble = trouble

    engine = two_lives(forbid)
    assert engine.loaded_blocks == 0
    # One connection of the scheduler for each rank's store, and two of each rank.
    assert 1 <= len(engine.log.lines) <= 3 * RANKS
    assert all(level == "warning" and trouble in text for level, text in engine.log.lines)


def test_every_prompt_block_is_found_in_the_next_life():
    for seed in range(20):
        _, engines = lives(seed, 1, lossy=False, count=2)
        assert engines[1].loaded_blocks > 0, seed


def test_negative_control_steps_that_still_run_are_caught(monkeypatch):
    plan_saves, add = plan.Planner._plan_saves, saver.Saver.add

    def at_once(self, track):
        # What is in flight counts as done: the mistake that the rule is there for.
        request = track.request
        in_flight, request.num_in_flight_tokens = request.num_in_flight_tokens, 0
        try:
            plan_saves(self, track)
        finally:
            request.num_in_flight_tokens = in_flight

    def add_and_wait(self, items):
        # The copy is faster than the step.
        add(self, items)
        assert self.drain(60)

    monkeypatch.setattr(saver.Saver, "add", add_and_wait)
    assert not any(lives(seed, 2)[0] for seed in range(10))
    monkeypatch.setattr(plan.Planner, "_plan_saves", at_once)
    assert any(lives(seed, 2)[0] for seed in range(10))


def test_negative_control_memory_that_is_not_held_is_caught(monkeypatch):
    add, close = saver.Saver.add, saver.Saver.close

    def add_the_last(self, items):
        # The copy is slower than the engine: each waits for the next.
        add(self, self.__dict__.pop("late", []))
        self.late = items

    def close_after(self, seconds):
        add(self, self.__dict__.pop("late", []))
        close(self, 60)

    monkeypatch.setattr(saver.Saver, "add", add_the_last)
    monkeypatch.setattr(saver.Saver, "close", close_after)
    monkeypatch.setattr(saver.Saver, "let_go", lambda self, block_ids: None)
    monkeypatch.setattr(plan.Planner, "finished", lambda self, request, block_ids: False)
    assert any(lives(seed, 1)[0] for seed in range(10))


def test_an_engine_that_was_reset_finds_nothing_of_others_and_others_nothing_of_it():
    clients = [CheckedClient(rank, []) for rank in range(RANKS)]
    found = []
    for life in range(3):
        engine = Engine(random.Random(life), clients, blocks=30)
        if life == 1:
            assert engine.scheduler.reset()
        stored = set(clients[0].values)
        engine.run(requests_of(random.Random(0), life))
        found.append(engine.loaded_blocks)
        if life == 1:
            assert len(set(clients[0].values) - stored) > 0
    assert found[1] == 0
    assert found[2] > 0, "the first life's blocks are still there"

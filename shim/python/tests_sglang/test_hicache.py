"""Pages between HiCache's pools and the daemon: everything arrives where it belongs, and whatever cannot be had is a miss."""

import types

import pytest
from sglang_stand_ins import Client, HostPool, Log, hashes, lineage

from infera_kvd.engine.counters import Counters
from infera_kvd.engine.daemon import Daemon
from infera_kvd.engine.keys import Shard, compat_key
from infera_kvd.engine.options import Keep
from infera_kvd.sglang import store
from infera_kvd.sglang.hicache import Pool, Pools, ranks_of
from infera_kvd.sglang.pages import page_key
from infera_kvd.sglang.store import PageStore

NAMES = hashes(8)


class Rank:
    """One rank of an engine: its pools over a client of its own."""

    def __init__(self, client, layout="page_first", *, compat_key="c", stores=True, extra=()):
        self.client = client
        self.log = Log()
        self.counters = Counters()
        self.daemon = Daemon([client], self.counters, self.log)
        self.pools = Pools(self.log)
        self.memory = {name: HostPool(layout) for name in ("kv", *extra)}
        for name, pool in self.memory.items():
            shard = Shard("m", f"{compat_key} {name}", pool.page_bytes)
            pages = PageStore(self.daemon, shard, Keep(), pool.page_size, self.counters, lineage)
            self.pools.add(name, Pool(pool, pages, pool.page_size, stores))

    def fill(self, numbers, name="kv"):
        """Different bytes in each page."""
        for number in numbers:
            pool = self.memory[name]
            pool.write(number, bytes((number * 37 + i) % 251 for i in range(pool.page_bytes)))

    def set(self, names, numbers, pool="kv", before=None):
        return self.pools.set(pool, names, self.memory[pool].indices(numbers), before)

    def get(self, names, numbers, pool="kv"):
        return self.pools.get(pool, names, self.memory[pool].indices(numbers))


@pytest.fixture
def client():
    return Client()


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_pages_come_back_to_other_places(client, layout):
    first, second = Rank(client, layout), Rank(client, layout)
    first.fill(range(4))
    assert first.set(NAMES[:4], [0, 1, 2, 3]) == [True] * 4
    assert second.pools.leading(NAMES) == 4
    assert second.get(NAMES[:4], [7, 2, 9, 0]) == [True] * 4
    for place, origin in ((7, 0), (2, 1), (9, 2), (0, 3)):
        assert second.memory["kv"].page(place) == first.memory["kv"].page(origin)
    assert second.memory["kv"].page(5) == bytes(first.memory["kv"].page_bytes), "other pages stay as they are"


def test_nothing_is_stored_twice(client):
    rank = Rank(client)
    rank.set(NAMES[:3], [0, 1, 2])
    assert rank.set(NAMES[:5], [0, 1, 2, 3, 4]) == [True] * 5
    assert [len(keys) for call, keys in client.calls if call == "save"] == [3, 2]
    assert rank.counters.totals()["save_present_blocks"] == 3


def test_only_leading_pages_count(client):
    rank = Rank(client)
    rank.set([NAMES[0], NAMES[1], NAMES[3]], [0, 1, 3])
    assert rank.pools.leading(NAMES) == 2
    assert rank.pools.leading([]) == 0
    assert rank.pools.leading(NAMES[2:]) == 0


def test_a_page_lost_between_look_up_and_load_is_a_miss(client):
    rank = Rank(client)
    rank.fill(range(4))
    rank.set(NAMES[:4], range(4))
    assert rank.pools.leading(NAMES[:4]) == 4
    del client.values[("m", "c kv", page_key(NAMES[2]))]
    # The last page is there, but HiCache takes the leading ones only.
    assert rank.get(NAMES[:4], [8, 9, 10, 11])[:3] == [True, True, False]
    assert rank.memory["kv"].page(10) == bytes(rank.memory["kv"].page_bytes)


def test_behind_a_part_that_failed_nothing_is_tried(client, monkeypatch):
    monkeypatch.setattr(store, "PART_PAGES_MAX", 2)
    rank = Rank(client)
    rank.set(NAMES, range(8))
    del client.values[("m", "c kv", page_key(NAMES[3]))]
    client.calls.clear()
    assert rank.get(NAMES, range(8, 16)) == [True, True, True, False, False, False, False, False]
    assert [len(keys) for call, keys in client.calls if call == "load"] == [2, 2]


def test_big_pages_go_in_small_parts(client, monkeypatch):
    monkeypatch.setattr(store, "PART_BYTES_MAX", 3 * HostPool().page_bytes)
    rank = Rank(client)
    assert rank.set(NAMES, range(8)) == [True] * 8
    assert [len(keys) for call, keys in client.calls if call == "save"] == [3, 3, 2]


@pytest.mark.parametrize("odd", [b"", b"x", b"x" * 500])
def test_short_and_odd_values_are_misses_and_leave_memory_alone(client, odd):
    rank = Rank(client)
    rank.set(NAMES[:2], [0, 1])
    client.values[("m", "c kv", page_key(NAMES[1]))] = odd
    assert rank.pools.leading(NAMES[:2]) == 1
    rank.fill([5])
    before = rank.memory["kv"].page(5)
    assert rank.get(NAMES[:2], [4, 5]) == [True, False]
    assert rank.memory["kv"].page(5) == before


def test_another_page_size_or_layout_is_another_namespace(client):
    Rank(client).set(NAMES[:2], [0, 1])
    assert Rank(client, "layer_first", compat_key="other").pools.leading(NAMES[:2]) == 0


def test_a_pool_that_changed_its_page_size_is_left_out_and_said_once(client):
    rank = Rank(client)
    rank.memory["kv"].token_bytes = 16
    assert rank.set(NAMES[:1], [0]) == [False]
    assert rank.get(NAMES[:1], [0]) == [False]
    assert [level for level, _ in rank.log.lines] == ["warning"]
    assert client.values == {}


@pytest.mark.parametrize("indices", [None, [], [0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7]])
def test_indices_that_do_not_fit_the_names_are_left_out(client, indices):
    rank = Rank(client)
    assert rank.pools.set("kv", NAMES[:1], indices) == [False]
    assert rank.pools.get("kv", NAMES[:1], indices) == [False]


def test_of_equal_ranks_one_stores_and_all_find(client):
    writer, reader = Rank(client), Rank(client, stores=False)
    reader.fill([0])
    assert reader.set(NAMES[:1], [0]) == [True]
    assert client.values == {}
    writer.fill([3])
    writer.set(NAMES[:1], [3])
    assert reader.get(NAMES[:1], [5]) == [True]
    assert reader.memory["kv"].page(5) == writer.memory["kv"].page(3)


def test_a_daemon_that_dies_is_a_miss_and_one_line_each_way(client):
    rank = Rank(client)
    rank.set(NAMES[:2], [0, 1])
    client.before = lambda name: setattr(client, "trouble", "gone") if name == "load" else None
    assert rank.pools.leading(NAMES[:2]) == 2
    assert rank.get(NAMES[:2], [4, 5]) == [False, False]
    for _ in range(3):
        assert rank.pools.leading(NAMES[:2]) == 0
        assert rank.set(NAMES[2:4], [2, 3]) == [False, False]
        assert rank.pools.restorable(NAMES, ())[0] == []
        assert rank.pools.clear() is False
    client.before, client.trouble = (lambda name: None), None
    assert rank.pools.leading(NAMES[:2]) == 2
    assert [level for level, _ in rank.log.lines] == ["warning", "info"]


def test_refused_pages_are_told_one_by_one(client):
    rank = Rank(client)
    client.refused = {page_key(NAMES[1])}
    assert rank.set(NAMES[:3], [0, 1, 2]) == [True, False, True]


def test_pages_are_described_where_the_one_before_is_known(client):
    rank = Rank(client)
    digests = [bytes.fromhex(name) for name in NAMES]
    rank.set(NAMES[:2], [0, 1])
    assert client.lineages[page_key(NAMES[0])] is None
    assert client.lineages[page_key(NAMES[1])] == ([digests[1]], digests[0], 4)
    rank.set(NAMES[2:3], [2], before=NAMES[1])
    assert client.lineages[page_key(NAMES[2])] == ([digests[2]], digests[1], 4)
    rank.set(hashes(1, stem=9), [3], before="")
    assert client.lineages[page_key(hashes(1, stem=9)[0])][1] is None


def test_clear_forgets_what_is_ours_and_nothing_else(client):
    rank, other = Rank(client, extra=("mamba",)), Rank(client, compat_key="other")
    rank.set(NAMES[:2], [0, 1])
    rank.set(NAMES[:1], [0], "mamba")
    other.set(NAMES[:1], [0])
    assert rank.pools.clear() is True
    assert [name[1] for name in client.values] == ["other kv"]


def test_what_is_stored_after_a_clear_is_not_for_others(client):
    rank, other = Rank(client), Rank(client)
    assert rank.pools.clear() is True
    # For instance because its weights were replaced.
    assert rank.set(NAMES[:2], [0, 1]) == [True, True]
    assert rank.pools.leading(NAMES[:2]) == 2
    assert other.pools.leading(NAMES[:2]) == 0


# Ranks.


def rank_config(rank, *, mla, **more):
    ranks = {"tp_rank": rank, "tp_size": 4, "pp_rank": 0, "pp_size": 2, "attn_cp_rank": 0, "attn_cp_size": 1}
    return types.SimpleNamespace(is_mla_model=mla, **(ranks | more))


def test_ranks_are_keyed_apart_by_what_differs_between_them():
    labels = [ranks_of(rank_config(rank, mla=False), "kv") for rank in range(4)]
    assert len({compat_key("sglang", label) for label, _ in labels}) == 4
    assert all(stores for _, stores in labels)
    first = compat_key("sglang", ranks_of(rank_config(0, mla=False), "kv")[0])
    for other in ({"pp_rank": 1}, {"pp_size": 1}, {"tp_size": 8}, {"attn_cp_size": 2}):
        assert compat_key("sglang", ranks_of(rank_config(0, mla=False, **other), "kv")[0]) != first


def test_of_mla_ranks_one_stores_for_all():
    ranks = [ranks_of(rank_config(rank, mla=True), "kv") for rank in range(4)]
    assert len({compat_key("sglang", label) for label, _ in ranks}) == 1
    assert [stores for _, stores in ranks] == [True, False, False, False]
    # What SGLang says itself counts.
    assert ranks_of(rank_config(2, mla=True, is_storage_writer=True), "kv")[1]
    assert not ranks_of(rank_config(0, mla=True, is_storage_writer=False), "kv")[1]


def test_mamba_states_differ_on_mla_ranks_too():
    ranks = [ranks_of(rank_config(rank, mla=True, is_storage_writer=False), "mamba") for rank in range(4)]
    assert len({compat_key("sglang", label) for label, _ in ranks}) == 4
    assert all(stores for _, stores in ranks)


# Several pools.


def transfer(name, policy="all_pages", keys=()):
    return types.SimpleNamespace(name=types.SimpleNamespace(value=name), hit_policy=policy, keys=list(keys))


def test_pools_do_not_share_names(client):
    rank = Rank(client, extra=("indexer",))
    rank.set(NAMES[:2], [0, 1])
    assert rank.get(NAMES[:1], [5], "indexer") == [False]
    assert rank.pools.restorable(NAMES, [transfer("indexer")]) == ([], {"kv": 2, "indexer": 0})


def test_a_prefix_is_as_long_as_all_its_pools_allow(client):
    rank = Rank(client, extra=("indexer", "mamba"))
    rank.set(NAMES[:4], range(4))
    rank.set(NAMES[:3], range(3), "indexer")
    rank.set([NAMES[1], NAMES[3]], [0, 1], "mamba")
    assert rank.pools.restorable(NAMES, [transfer("kv")])[0] == [1, 2, 3, 4]
    assert rank.pools.restorable(NAMES, [transfer("indexer")])[0] == [1, 2, 3]
    mamba = transfer("mamba", "trailing_pages", NAMES[:1])
    assert rank.pools.restorable(NAMES, [mamba]) == ([2, 4], {"kv": 4, "mamba": 4})
    assert rank.pools.restorable(NAMES, [mamba, transfer("indexer")])[0] == [2]


@pytest.mark.parametrize(("name", "policy"), [("draft", "all_pages"), ("kv4", "block_groups"), ("indexer", "block_groups")])
def test_pools_and_policies_that_are_not_served_find_nothing_and_are_named(client, name, policy):
    rank = Rank(client, extra=("indexer",))
    rank.set(NAMES[:2], [0, 1])
    assert rank.pools.restorable(NAMES, [transfer(name, policy)]) == ([], {})
    assert rank.pools.restorable(NAMES, [transfer(name, policy)]) == ([], {})
    assert [name in text for _, text in rank.log.lines] == [True]


def test_without_the_main_pool_everything_is_a_miss(client):
    pools = Pools(Log())
    assert pools.leading(NAMES) == 0
    assert pools.restorable(NAMES, ()) == ([], {"kv": 0})
    assert pools.get("kv", NAMES[:1], [0]) == pools.set("kv", NAMES[:1], [0]) == [False]
    assert pools.get_values(NAMES[:1], [bytearray(1)]) == pools.set_values(NAMES[:1], [b"x"]) == [False]


# Values in buffers of the caller's.


def test_values_come_back(client):
    rank = Rank(client)
    size = rank.memory["kv"].page_bytes
    values = [bytes([number]) * size for number in range(3)]
    assert rank.pools.set_values(NAMES[:3], values) == [True] * 3
    targets = [bytearray(size) for _ in range(4)]
    assert rank.pools.get_values(NAMES[:4], targets) == [True, True, True, False]
    assert targets[:3] == values
    assert targets[3] == bytes(size)


def test_values_of_other_sizes_are_not_stored(client):
    rank = Rank(client)
    size = rank.memory["kv"].page_bytes
    assert rank.pools.set_values(NAMES[:2], [bytes(size), bytes(size - 1)]) == [False, False]
    assert rank.pools.set_values(NAMES[:2], [bytes(size)]) == [False, False]
    assert client.values == {}


def test_values_are_stored_by_one_of_equal_ranks(client):
    rank = Rank(client, stores=False)
    assert rank.pools.set_values(NAMES[:1], [bytes(rank.memory["kv"].page_bytes)]) == [True]
    assert client.values == {}

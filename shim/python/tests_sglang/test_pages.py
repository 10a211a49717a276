"""Names and places of pages, and which lengths of a prefix can be restored."""

import types

import pytest
from sglang_stand_ins import HostPool, hashes

from infera_kvd.engine.errors import Refused
from infera_kvd.sglang.pages import (
    check_pool,
    description,
    page_key,
    page_starts,
    parents,
    restorable_lengths,
    runs_of,
)


def test_keys_are_the_hashes_and_anything_else_cannot_be_one_of_them():
    name = hashes(1)[0]
    assert page_key(name) == bytes.fromhex(name) + b"\0\0\0\0"
    odd = {page_key("x"), page_key("y" * 1000), page_key(name + ".kv")}
    assert len(odd) == 3
    assert all(len(key) == 36 and key[-4:] == b"\0\0\0\1" for key in odd)


def test_parents_of_a_chain():
    assert parents(["a", "b", "c"]) == [None, "a", "b"]
    assert parents(["a"], "z") == ["z"]
    assert parents([]) == []


def test_runs_are_grouped_by_page():
    assert runs_of([1, 2, 3, 4], [5, 6, 5, 6], 2) == [[(1, 5), (2, 6)], [(3, 5), (4, 6)]]
    assert runs_of([], [], 0) == []


@pytest.mark.parametrize(
    ("addresses", "sizes", "pages"),
    [([1, 2, 3], [5, 5, 5], 2), ([1, 2], [5], 2), ([1, 2], [5, 6], 2), ([1], [5], 0), ([], [], 2)],
)
def test_runs_that_do_not_come_out_even_are_refused(addresses, sizes, pages):
    with pytest.raises(ValueError, match="pages"):
        runs_of(addresses, sizes, pages)


@pytest.mark.parametrize(("layout", "runs"), [("page_first", 2), ("layer_first", 6)])
def test_a_pool_is_looked_at_through_its_first_page(layout, runs):
    pool = HostPool(layout)
    sizes = check_pool("kv", pool, pool.indices([0]))
    assert len(sizes) == runs
    assert sum(sizes) == pool.page_bytes


def test_pools_that_cannot_be_served_are_named():
    pool = HostPool()
    with pytest.raises(Refused, match="pool draft"):
        check_pool("draft", pool, pool.indices([0]))
    with pytest.raises(Refused, match="pool draft_swa"):
        check_pool("draft_swa", pool, pool.indices([0]))

    class Anchor:
        def get_page_buffer_meta(self, indices):
            return None

    class Scaled:
        def get_page_buffer_meta(self, indices):
            raise NotImplementedError("its scales are elsewhere")

    class Empty:
        def get_page_buffer_meta(self, indices):
            return [1], [0]

    for odd, why in ((Anchor(), "Anchor"), (Scaled(), "scales are elsewhere"), (Empty(), "no bytes")):
        with pytest.raises(Refused, match=f"pool kv .*{why}"):
            check_pool("kv", odd, [0])


def test_the_description_tells_layouts_page_sizes_and_types_apart():
    base = {"layout": "page_first", "page_size": 32, "head_num": 2, "dtype": "torch.bfloat16"}
    variants = [base, base | {"layout": "layer_first"}, base | {"page_size": 64}, base | {"dtype": "torch.float16"}]
    told = [repr(description(types.SimpleNamespace(**one), [8])) for one in variants]
    assert len(set(told)) == len(told)
    # How many pages there are makes no difference.
    assert description(HostPool(pages=4), [8]) == description(HostPool(pages=9), [8])


def test_page_starts():
    assert page_starts([8, 9, 10, 11, 0, 1, 2, 3], 4) == [8, 0]
    assert page_starts([], 4) == []


@pytest.mark.parametrize("slots", [[0, 1, 2], [1, 2, 3, 4], [0, 1, 3, 2], [0, 1, 2, 4], [-4, -3, -2, -1]])
def test_slots_that_are_no_pages_are_refused(slots):
    with pytest.raises(ValueError, match="slots"):
        page_starts(slots, 4)


def test_every_pool_has_to_reach_a_length():
    assert restorable_lengths(3, []) == ([1, 2, 3], {})
    assert restorable_lengths(3, [("indexer", [True, True, False], None)]) == ([1, 2], {"indexer": 2})
    assert restorable_lengths(0, [("indexer", [], None)]) == ([], {"indexer": 0})


def test_pools_of_the_end_of_a_prefix_leave_holes():
    has = [True, True, False, True, True]
    assert restorable_lengths(5, [("swa", has, 2)]) == ([1, 2, 5], {"swa": 5})
    assert restorable_lengths(5, [("mamba", has, 1)]) == ([1, 2, 4, 5], {"mamba": 5})
    assert restorable_lengths(5, [("mamba", has, 1), ("indexer", has, None)]) == ([1, 2], {"mamba": 5, "indexer": 2})
    assert restorable_lengths(2, [("mamba", [False, False], 1)]) == ([], {"mamba": 0})

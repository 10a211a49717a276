"""Caches that can be served, and the layer that is named when one cannot."""

import pytest

from infera_kvd.engine.errors import Refused
from infera_kvd.vllm.layout import Layer, Pages, block_bytes, check_groups, description, pages_of


def layer(name="l0", shape=(10, 2, 32, 128), stride=(8192, 4096, 128, 1), device="cpu", address=0):
    """One layer of bf16."""
    return Layer(name, device, "bfloat16", 2, shape, stride, address)


def test_layer_after_layer():
    layers = [layer("l0"), layer("l1", address=1)]
    pages = pages_of(layers, 10)
    assert pages == [Pages("l0", 16384, 16384, 1), Pages("l1", 16384, 16384, 1)]
    assert block_bytes(pages) == 32768


def test_block_after_block():
    (page,) = pages_of([layer(stride=(8192 * 4, 4096, 128, 1))], 10)
    assert page == Pages("l0", 16384, 65536, 1)


def test_pages_smaller_than_blocks():
    (page,) = pages_of([layer(shape=(40, 2, 8, 128), stride=(2048, 1024, 128, 1))], 10)
    assert page == Pages("l0", 4096, 4096, 4)
    assert block_bytes([page]) == 16384


def test_a_single_latent_without_heads():
    (page,) = pages_of([layer(shape=(10, 32, 576), stride=(18432, 576, 1))], 10)
    assert page.bytes == 36864


def test_shared_memory_counts_once():
    assert len(pages_of([layer("l0"), layer("l1")], 10)) == 1


@pytest.mark.parametrize(
    "odd",
    [
        layer("odd", device="cuda"),
        layer("odd", shape=(2, 10, 32, 128), stride=(40960, 4096, 128, 1)),
        layer("odd", shape=(15, 2, 32, 128)),
        layer("odd", shape=(10,), stride=(1,)),
        layer("odd", stride=(8192, 128, 256, 1)),
        layer("odd", stride=(4096, 4096, 128, 1)),
    ],
)
def test_what_cannot_be_served_is_named(odd):
    with pytest.raises(Refused, match="layer odd"):
        pages_of([layer("l0", address=7), odd], 10)


def test_groups():
    assert check_groups([[("a", "FullAttentionSpec"), ("b", "FullAttentionSpec")]]) is False
    assert check_groups([[("a", "MLAAttentionSpec")]]) is True
    assert check_groups([[("a", "MLAAttentionSpec"), ("b", "FullAttentionSpec")]]) is False
    with pytest.raises(Refused, match="layer b keeps a SlidingWindowSpec"):
        check_groups([[("a", "FullAttentionSpec")], [("b", "SlidingWindowSpec")]])
    with pytest.raises(Refused, match="layer b is in cache group 1"):
        check_groups([[("a", "FullAttentionSpec")], [("b", "FullAttentionSpec")]])
    with pytest.raises(Refused, match="no layer"):
        check_groups([])


def test_the_description_leaves_out_how_many_blocks_there_are():
    assert description([layer()]) == description([layer(shape=(99, 2, 32, 128))])
    assert description([layer()]) != description([layer(shape=(10, 4, 32, 64))])

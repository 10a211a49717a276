"""Names of blocks and namespaces."""

import pytest

from infera_kvd.engine.keys import (
    NAMESPACE_BYTES_MAX,
    BlockKeys,
    Names,
    Ranks,
    block_key,
    compat_key,
    model_name,
)


def test_a_key_is_the_hash_and_the_group():
    assert block_key(b"\x01" * 32) == b"\x01" * 32 + b"\0\0\0\0"
    assert block_key(b"\x01" * 32, 258) == b"\x01" * 32 + b"\0\0\x01\x02"


def test_every_part_changes_the_compat_key():
    parts = {"vllm": "0.32.0", "weights": "a", "dtype": "bfloat16", "stage": [["l", [2, 32, 128]]]}
    base = compat_key("vllm", **parts)
    assert base == compat_key("vllm", **dict(reversed(parts.items())))
    assert compat_key("sglang", **parts) != base
    for name in parts:
        assert compat_key("vllm", **parts | {name: "other"}) != base
        assert compat_key("vllm", Ranks(pipeline=(1, 2)), **parts | {name: "other"}) != compat_key(
            "vllm", Ranks(pipeline=(1, 2)), **parts
        )
    assert len(base.encode()) <= NAMESPACE_BYTES_MAX


def test_ranks_are_apart_unless_they_hold_the_same_bytes():
    def of(*places, replicated=False):
        return compat_key("vllm", Ranks(*places, replicated=replicated), weights="a")

    kinds = [
        [((0, 1),)],
        [((0, 2),), ((1, 2),)],
        [((0, 4),)],
        [((0, 1), (0, 2)), ((0, 1), (1, 2))],
        [((0, 1), (0, 1), (0, 2)), ((0, 1), (0, 1), (1, 2))],
        [((0, 2), (1, 2))],
    ]
    names = [of(*places) for kind in kinds for places in kind]
    assert len(set(names)) == len(names)
    # One name for all, which is not that of an engine of one rank.
    assert of((0, 2), replicated=True) == of((1, 2), replicated=True)
    assert of((0, 2), replicated=True) not in names
    for wrong in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError):
            Ranks(wrong)


def test_a_router_sees_which_part_a_rank_stores():
    def parts(name):
        family, _, end = name.partition("-tp")
        return family, end and f"tp{end}"

    assert parts(compat_key("vllm", weights="a"))[1] == ""
    two = [parts(compat_key("vllm", Ranks((rank, 2)), weights="a")) for rank in range(2)]
    assert two[0][0] == two[1][0] and [end for _, end in two] == ["tp0of2_pp0of1", "tp1of2_pp0of1"]
    assert Ranks((1, 2), (2, 4), (1, 2)).text() == "tp1of2_pp2of4_cp1of2"
    # Whoever stores for all ranks stores whole blocks, but only those of its stage.
    assert Ranks((1, 2), replicated=True).text() == ""
    assert Ranks((1, 2), (1, 2), replicated=True).text() == "tp0of1_pp1of2"


def test_stages_have_other_layers_and_belong_together():
    def of(rank, layers, partition=None):
        return compat_key("vllm", Ranks(pipeline=(rank, 2)), layers, partition=partition)

    first, second = of(0, ["a"]), of(1, ["b"])
    family, _, end = first.partition("-tp")
    assert second.startswith(f"{family}-tp0of1_pp1of2_own") and len(end.partition("_own")[2]) == 16
    # Other layers under the same rank are others' bytes, and other stages are another family.
    assert of(0, ["a", "b"]) != first
    assert not of(0, ["a"], "1,1").startswith(family)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("/models/llama", "llama"),
        ("/models/llama/", "llama"),
        ("./llama", "llama"),
        ("models/zoo/llama", "llama"),
        ("/", "model"),
    ],
)
def test_a_model_is_called_by_its_id_or_its_folder(given, name):
    assert model_name(given) == name


def test_a_long_name_is_cut_between_characters():
    assert len(model_name("ä" * 2000).encode()) <= NAMESPACE_BYTES_MAX


def test_keys_of_a_run_are_made_slice_by_slice():
    hashes = [bytes([number]) * 32 for number in range(10)]
    names = Names()
    run = BlockKeys(names, hashes, 3, 8)
    assert len(run) == 5
    assert run[:2] == [block_key(hashes[3]), block_key(hashes[4])]
    assert run[:99] == [block_key(block_hash) for block_hash in hashes[3:8]]
    assert run[5:] == []
    names.renew()
    assert run[:1] == [block_key(names.of(hashes[3]))] != [block_key(hashes[3])]
    assert len(BlockKeys(names, hashes, 8, 3)) == 0

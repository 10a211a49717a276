"""Names of blocks and namespaces."""

import pytest

from infera_kvd.engine.keys import (
    NAMESPACE_BYTES_MAX,
    BlockKeys,
    Names,
    block_key,
    compat_key,
    model_name,
    shard_label,
)


def test_a_key_is_the_hash_and_the_group():
    assert block_key(b"\x01" * 32) == b"\x01" * 32 + b"\0\0\0\0"
    assert block_key(b"\x01" * 32, 258) == b"\x01" * 32 + b"\0\0\x01\x02"


def test_every_part_changes_the_compat_key():
    parts = {"vllm": "0.32.0", "weights": "a", "dtype": "bfloat16", "layers": [["l", [2, 32, 128]]], "rank": "0/2"}
    base = compat_key("vllm", **parts)
    assert base == compat_key("vllm", **dict(reversed(parts.items())))
    assert compat_key("sglang", **parts) != base
    for name in parts:
        assert compat_key("vllm", **parts | {name: "other"}) != base
    assert len(base.encode()) <= NAMESPACE_BYTES_MAX


def test_ranks_are_apart_unless_they_hold_the_same_bytes():
    assert shard_label(0, 2) != shard_label(1, 2)
    assert shard_label(0, 2) != shard_label(0, 4)
    assert shard_label(0, 2, replicated=True) == shard_label(1, 2, replicated=True)
    with pytest.raises(ValueError):
        shard_label(2, 2)


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

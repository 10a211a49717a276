"""Models are told apart by what they are, not by where they lie."""

import json
import os
import struct

import pytest

from infera_kvd.engine.fingerprint import of_configuration, of_file, of_weights

TENSOR_BYTES = 64 << 10


def write_safetensors(path, tensors):
    """A file of the format: the table, then the bytes."""
    table, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, data in tensors.items():
        table[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    head = json.dumps(table).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(tensors.values()))


def model(folder, **changes):
    """A folder with two files of weights."""
    folder.mkdir()
    tensors = {f"layer.{i}": bytes([i]) * TENSOR_BYTES for i in range(8)} | changes
    first = {name: tensors[name] for name in list(tensors)[:4]}
    rest = {name: tensors[name] for name in list(tensors)[4:]}
    write_safetensors(folder / "model-1.safetensors", first)
    write_safetensors(folder / "model-2.safetensors", rest)
    return folder


def test_a_copy_is_the_same_model(tmp_path):
    first, second = model(tmp_path / "a"), model(tmp_path / "b")
    os.utime(second / "model-1.safetensors", (1, 1))
    assert of_weights(first) == of_weights(second)


@pytest.mark.parametrize("layer", range(8))
def test_another_content_of_any_one_tensor_is_another_model(tmp_path, layer):
    changed = {f"layer.{layer}": b"\xff" * TENSOR_BYTES}
    assert of_weights(model(tmp_path / "a")) != of_weights(model(tmp_path / "b", **changed))


@pytest.mark.parametrize("part", ["the first rows", "the last rows", "an expert"])
def test_another_content_of_a_part_of_a_tensor_is_another_model(tmp_path, part):
    whole = bytearray(40 << 20)
    base = of_weights(model(tmp_path / "a", large=bytes(whole)))
    first, length = {"the first rows": (0, 2048), "the last rows": (-2048, 2048), "an expert": (9 << 20, 5 << 20)}[part]
    at = first % len(whole)
    whole[at : at + length] = b"\1" * length
    assert of_weights(model(tmp_path / "b", large=bytes(whole))) != base


def test_a_name_and_a_missing_file_count(tmp_path):
    base = of_weights(model(tmp_path / "a"))
    renamed = model(tmp_path / "b")
    (renamed / "model-2.safetensors").rename(renamed / "model-3.safetensors")
    assert of_weights(renamed) != base
    cut = model(tmp_path / "c")
    (cut / "model-2.safetensors").unlink()
    assert of_weights(cut) != base


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, struct.pack("<Q", 2) + b"no", struct.pack("<Q", 1 << 60)])
def test_a_broken_file_is_sampled_like_any_other(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content + b"x" * 100_000)
    assert of_weights(tmp_path)


def test_spans_outside_the_file_are_not_followed(tmp_path):
    table = json.dumps({"t": {"data_offsets": [0, 1 << 50]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(table)) + table + b"x" * 9)
    assert of_weights(tmp_path)


def test_other_formats_are_sampled_all_over(tmp_path):
    data = bytearray(4 << 20)
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    base = of_file(path)
    for at in (0, len(data) // 2, len(data) - 4096):
        changed = data[:]
        changed[at : at + 4096] = b"\1" * 4096
        path.write_bytes(changed)
        assert of_file(path) != base


def test_no_weights_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="no weights"):
        of_weights(tmp_path)


def test_a_configuration_is_its_content():
    base = {"hidden_size": 256, "rope": {"theta": 1.0}, "_name_or_path": "/a"}
    assert of_configuration(base) == of_configuration(dict(reversed(base.items())) | {"_name_or_path": "/b"})
    assert of_configuration(base) != of_configuration(base | {"rope": {"theta": 2.0}})


def test_weights_of_a_second_format_count_as_well(tmp_path):
    folder = model(tmp_path / "a")
    (folder / "pytorch_model.bin").write_bytes(b"\0" * TENSOR_BYTES)
    before = of_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\1" * TENSOR_BYTES)
    assert of_weights(folder) != before

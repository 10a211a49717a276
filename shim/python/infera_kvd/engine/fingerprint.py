"""Identity of a model: its configuration, and its weights without reading all of them.

Two folders get the same fingerprint only if their configurations are equal and their weight files agree in everything
that is looked at: names, sizes, the complete table of tensors, and bytes from *each* tensor: from both ends, where the
rows of tokens that were added are, from the middle, and from every 4 MiB between, where each expert of a stack is.
Training or merging changes whole matrices, so a model of the same shape under the same name is told apart; path and time
of the files do not count, so a copy is the same model. Files of other formats are looked at in 1 024 places each.
"""

import hashlib
import json
import pathlib
import struct

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
SAMPLE_BYTES = 2048
STEP_BYTES = 4 << 20
PLACES = 1024
# safetensors: a table longer than this is none.
TABLE_BYTES_MAX = 100 << 20
# What loading adds to a configuration, and what only says where it came from.
VOLATILE = ("_name_or_path", "_commit_hash", "transformers_version", "torch_dtype", "dtype")


def of_configuration(configuration):
    """The digest of a model's configuration. `configuration`: a dict; what JSON cannot hold counts as its text."""
    kept = {name: value for name, value in configuration.items() if name not in VOLATILE}
    return _digest(json.dumps(kept, sort_keys=True, default=str).encode())


def of_weights(folder):
    """The digest of the weight files directly in `folder`; raises `FileNotFoundError` if there are none."""
    folder = pathlib.Path(folder)
    # Of all formats: which of them is loaded is an engine's choice.
    files = sorted((path for pattern in WEIGHTS for path in folder.glob(pattern)), key=lambda path: path.name)
    if not files:
        raise FileNotFoundError(f"no weights ({', '.join(WEIGHTS)}) in {folder}")
    return _digest(*(part for path in files for part in _parts(path)))


def of_file(path):
    """The digest of one weight file, for formats that are one file."""
    return _digest(*_parts(pathlib.Path(path)))


def _parts(path):
    size = path.stat().st_size
    yield f"{path.name} {size}".encode()
    with open(path, "rb") as file:
        table = _table(file, size) if path.suffix == ".safetensors" else None
        if table is not None:
            yield table
        for offset, length in _tensors(table, size) if table else _places(size):
            file.seek(offset)
            yield file.read(length)


def _table(file, size):
    """The table of tensors as bytes, `None` if this is not such a file."""
    head = file.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    if not 2 <= length <= min(TABLE_BYTES_MAX, size - 8):
        return None
    return file.read(length)


def _tensors(table, size):
    """Samples from all over each tensor, as (offset, length) in the file."""
    base = 8 + len(table)
    try:
        spans = [about["data_offsets"] for name, about in json.loads(table).items() if name != "__metadata__"]
        return sorted(place for first, end in spans for place in _spread(base + first, base + end, size))
    except (ValueError, TypeError, KeyError, AttributeError):
        return _places(size)


def _spread(first, end, size):
    if not 0 <= first <= end <= size:
        raise ValueError("a tensor outside the file")
    length = min(SAMPLE_BYTES, end - first)
    room = end - first - length
    intervals = 2 + room // STEP_BYTES
    return {(first + room * i // intervals, length) for i in range(intervals + 1)}


def _places(size):
    step = max(size // PLACES, SAMPLE_BYTES)
    return [(offset, min(SAMPLE_BYTES, size - offset)) for offset in range(0, size, step)]


def _digest(*parts):
    digest = hashlib.sha256()
    for part in parts:
        # With its length, so that no two lists of parts run together.
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()

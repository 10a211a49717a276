"""Where a block's bytes are in the engine's cache, or why this cache cannot be served.

A cache is taken if each layer is an array of blocks on the host whose pages are single runs of bytes. A block's value
is its pages, layer after layer. What is inside a page is the attention backend's business: only whole blocks move, and
everything that decides about their bytes is in the namespace.
"""

import dataclasses

from infera_kvd.engine.errors import Refused

# By the names of their classes: what keeps every token of a request, so that a prefix is all it needs.
ATTENTION = ("FullAttentionSpec", "MLAAttentionSpec")
# The same bytes on every rank of a tensor-parallel group.
REPLICATED = ("MLAAttentionSpec",)


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer's cache as its tensor describes itself. Strides in elements, like torch's."""

    name: str
    device: str
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    address: int


@dataclasses.dataclass(frozen=True)
class Pages:
    """Where the pages of one layer are: page `p` of `bytes` bytes begins `p * stride_bytes` bytes into the tensor."""

    name: str
    bytes: int
    stride_bytes: int
    per_block: int


def check_groups(groups):
    """Refuses what is not one group of full-attention layers.

    `groups`: for each cache group a list of (layer name, name of the class of its cache spec).
    Returns whether every rank holds the same bytes.
    """
    for index, layers in enumerate(groups):
        for name, kind in layers:
            if kind not in ATTENTION:
                raise Refused(f"layer {name} keeps a {kind}: only {' and '.join(ATTENTION)} are served")
            if index > 0:
                raise Refused(f"layer {name} is in cache group {index}: vLLM takes failed loads of one group only")
    kinds = {kind for layers in groups for _, kind in layers}
    if not kinds:
        raise Refused("there is no layer with a cache")
    return kinds <= set(REPLICATED)


def pages_of(layers, blocks):
    """The pages of each layer, in the order given; a layer that shares another's memory counts once.

    `blocks`: how many blocks the engine's block table counts. Raises `Refused`.
    """
    pages, seen = [], set()
    for layer in layers:
        if layer.address not in seen:
            seen.add(layer.address)
            pages.append(_pages(layer, blocks))
    if not pages:
        raise Refused("there is no layer with a cache")
    return pages


def _pages(layer, blocks):
    if layer.device != "cpu":
        raise Refused(f"layer {layer.name} is on {layer.device}: this release copies from and to host memory only")
    rows = layer.shape[0] if layer.shape else 0
    if len(layer.shape) < 2 or rows < blocks or rows % blocks != 0:
        raise Refused(f"layer {layer.name} has the shape {layer.shape}, which does not begin with its {blocks} blocks")
    expected = 1
    for extent, stride in zip(reversed(layer.shape[1:]), reversed(layer.stride[1:]), strict=True):
        if extent != 1 and stride != expected:
            raise Refused(f"layer {layer.name}, shape {layer.shape}, stride {layer.stride}: a page is not one run of bytes")
        expected *= extent
    if layer.stride[0] < expected:
        raise Refused(f"layer {layer.name}, shape {layer.shape}, stride {layer.stride}: its blocks overlap")
    return Pages(layer.name, expected * layer.itemsize, layer.stride[0] * layer.itemsize, rows // blocks)


def block_bytes(pages):
    """Bytes of one block's value."""
    return sum(page.bytes * page.per_block for page in pages)


def description(layers):
    """What has to be equal between two caches, apart from how many blocks they have. For JSON."""
    return [[layer.name, layer.dtype, layer.itemsize, list(layer.shape[1:])] for layer in layers]

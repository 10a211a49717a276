"""Where a block's bytes are in ATOM's cache, or why this cache cannot be served.

A layer's cache is some tensors, its planes. Each is one run of memory that begins with block 0, whatever its shape
says, so that a block of it is a slice of bytes. A block's value is those slices, layer after layer.
"""

import ctypes

from infera_kvd.engine.errors import Refused

PLANES = ("k_cache", "v_cache", "k_scale", "v_scale", "index_cache", "index_scale")


class Plane:
    """One tensor as blocks of bytes, in place. `bytes`: of one block."""

    def __init__(self, tensor, blocks):
        nbytes = tensor.numel() * tensor.element_size()
        # Its memory lives as long as it does.
        self._tensor = tensor
        self._memory = memoryview((ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())).cast("B")
        self.bytes = nbytes // blocks

    def block(self, number):
        """The bytes of one block, to read and to write."""
        return self._memory[number * self.bytes : (number + 1) * self.bytes]


def planes(caches, blocks):
    """The planes of all layers, in the order given; raises `Refused`.

    `caches`: layer's name to an object with its tensors. `blocks`: how many blocks the scheduler counts.
    """
    found = [plane for name, cache in caches.items() for plane in _planes_of(name, cache, blocks)]
    if not found:
        raise Refused("there is no layer with a cache")
    return found


def _planes_of(name, cache, blocks):
    if getattr(cache, "per_request_state", False):
        raise Refused(f"layer {name} keeps a state of each request beside its blocks")
    for plane in PLANES:
        tensor = getattr(cache, plane, None)
        if tensor is None or tensor.numel() == 0:
            continue
        if tensor.device.type != "cpu":
            raise Refused(
                f"layer {name} is on {tensor.device.type}: this release copies from and to host memory only"
            )
        if not tensor.is_contiguous() or not blocks or tensor.numel() % blocks != 0:
            raise Refused(f"layer {name}: {plane}, shape {tuple(tensor.shape)}, is not {blocks} blocks in one run")
        yield Plane(tensor, blocks)

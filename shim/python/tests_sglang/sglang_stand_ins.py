"""Stand-ins: a client whose daemon is a dictionary, a log that is a list, and pools of pages in real memory."""

import ctypes
import dataclasses
import threading

WAIT_SECONDS = 30


@dataclasses.dataclass
class Located:
    """One row of a look-up."""

    present: bool
    nbytes: int
    load_us: int = 0


class Miss:
    """What is not there; false, as the native one."""

    def __bool__(self):
        return False


class View(bytes):
    """A pinned value."""

    nbytes = property(len)


class Unavailable(Exception):
    """What the native client raises for a daemon that cannot do what it was asked for."""

    code = "disconnected"


class Client:
    """What the native client can do, as far as SGLang's backends use it.

    `trouble`: as long as it is set nothing works. `before`: called with the name of each call before it is answered.
    """

    def __init__(self):
        self.values = {}
        self.calls = []
        self.lineages = {}
        self.trouble = None
        self.before = lambda name: None
        self.refused = set()
        self.closed = False
        self._lock = threading.Lock()

    def locate(self, model, compat_key, keys, *, prefix=True):
        """Where the keys are."""
        self._called("locate", keys)
        rows = []
        for key in keys:
            value = self._value(model, compat_key, key)
            rows.append(Located(value is not None, len(value or b"")))
            if prefix and value is None:
                break
        return rows

    def fetch(self, model, compat_key, keys, *, prefix=False):
        """Pins what is there."""
        self._called("fetch", keys)
        values = [self._value(model, compat_key, key) for key in keys]
        return [Miss() if value is None else View(value) for value in values]

    def load(self, model, compat_key, keys, targets):
        """Copies what is there and fits, `"miss"` for the rest."""
        self._called("load", keys)
        answers = []
        for key, target in zip(keys, targets, strict=True):
            value, at = self._value(model, compat_key, key), 0
            fits = value is not None and len(value) == sum(len(part) for part in target)
            for part in target if fits else ():
                part[:] = value[at : at + len(part)]
                at += len(part)
            answers.append(None if fits else "miss")
        return answers

    def save(self, model, compat_key, keys, sources, *, retention, ttl, lineages):
        """Takes what is not refused."""
        self._called("save", keys)
        answers = []
        for key, source, lineage in zip(keys, sources, lineages, strict=True):
            taken = not self.trouble and key not in self.refused
            if taken:
                self.values[(model, compat_key, key)] = b"".join(bytes(part) for part in source)
                self.lineages[key] = lineage
            answers.append(None if taken else "refused")
        return answers

    def clear(self, *, model, compat_key):
        """Forgets a namespace."""
        self._called("clear", ())
        if self.trouble:
            raise Unavailable(self.trouble)
        for name in [name for name in self.values if name[:2] == (model, compat_key)]:
            del self.values[name]
        return 0

    def close(self):
        """The end."""
        self.closed = True

    def _value(self, model, compat_key, key):
        return None if self.trouble else self.values.get((model, compat_key, key))

    def _called(self, name, keys):
        self.before(name)
        with self._lock:
            self.calls.append((name, list(keys)))


class Log:
    """Lines as (level, text)."""

    def __init__(self):
        self.lines = []

    def warning(self, text, *values):
        """One line."""
        self.lines.append(("warning", text % values))

    def info(self, text, *values):
        """One line."""
        self.lines.append(("info", text % values))


class HostPool:
    """K and V of some layers for `pages` pages, laid out as HiCache's host pools are."""

    layer_num, page_size, token_bytes = 3, 4, 8

    def __init__(self, layout="page_first", pages=16):
        self.layout = layout
        self.size = pages * self.page_size
        self.bytes = bytearray(2 * self.layer_num * self.size * self.token_bytes)
        self._anchor = (ctypes.c_ubyte * len(self.bytes)).from_buffer(self.bytes)
        self.address = ctypes.addressof(self._anchor)

    def get_page_buffer_meta(self, indices):
        """Addresses and sizes, page by page."""
        assert len(indices) % self.page_size == 0
        half, addresses = len(self.bytes) // 2, []
        layers = self.layer_num if self.layout == "layer_first" else 1
        row = self.token_bytes * (1 if self.layout == "layer_first" else self.layer_num)
        for first in indices[:: self.page_size]:
            for layer in range(layers):
                key = self.address + layer * self.size * row + first * row
                addresses += [key, key + half]
        return addresses, [row * self.page_size] * len(addresses)

    def page(self, number):
        """All bytes of a page, in the order of its runs."""
        addresses, sizes = self.get_page_buffer_meta(self.indices([number]))
        return b"".join(ctypes.string_at(*run) for run in zip(addresses, sizes, strict=True))

    def write(self, number, value):
        """Sets all bytes of a page."""
        at = 0
        for address, size in zip(*self.get_page_buffer_meta(self.indices([number])), strict=True):
            ctypes.memmove(address, value[at : at + size], size)
            at += size

    def indices(self, numbers):
        """The indices of some pages."""
        return [token for number in numbers for token in range(number * self.page_size, (number + 1) * self.page_size)]

    @property
    def page_bytes(self):
        """Bytes of one page."""
        return 2 * self.layer_num * self.page_size * self.token_bytes


def hashes(count, stem=0):
    """Names of pages as SGLang makes them."""
    return [f"{stem:032x}{number:032x}" for number in range(count)]


def lineage(engine_hashes, *, parent, tokens_per_block):
    """Stands for the native `Lineage`."""
    return engine_hashes, parent, tokens_per_block


class LayerCounter:
    """SGLang's counter of loaded layers, as far as it is used. `events`: what was told, in order."""

    def __init__(self, layers):
        self.layers = layers
        self.events = []
        self.batches = -1
        self.changed = threading.Condition()

    def update_producer(self):
        """A new batch."""
        self.batches += 1
        return self.batches

    def complete(self, index, layer):
        """A layer is there."""
        self._tell(("complete", index, layer))

    def fail(self, index, error):
        """The rest of the layers will not come."""
        self._tell(("fail", index, str(error)))

    def reset(self):
        """A new beginning."""
        self._tell(("reset",))

    def finish(self, index):
        """Waits until a batch is through. Whether all of it is there."""
        last, failed = ("complete", index, self.layers - 1), ("fail", index)
        with self.changed:
            assert self.changed.wait_for(lambda: any(one == last or one[:2] == failed for one in self.events), WAIT_SECONDS)
            return last in self.events

    def _tell(self, event):
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

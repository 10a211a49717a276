"""Stand-ins: a client whose daemon is a dictionary, a log that is a list."""

import dataclasses
import threading


@dataclasses.dataclass
class Located:
    """One row of a look-up."""

    present: bool
    nbytes: int
    load_us: int = 0


class Unavailable(Exception):
    """What the native client raises for a daemon that cannot do what it was asked for."""

    code = "disconnected"


class Client:
    """What the native client can do, as far as the connector uses it. `trouble` as long as it is set: nothing works."""

    def __init__(self):
        self.values = {}
        self.calls = []
        self.trouble = None
        self.fault = None
        self.refused = set()
        self.lost = lambda key: False
        self.closed = False
        self.load_us = lambda key: 0
        self._lock = threading.Lock()

    def locate(self, model, compat_key, keys, *, prefix=True):
        """Where the keys are."""
        self._called("locate", keys)
        rows = []
        for key in keys:
            value = None if self.trouble else self.values.get((model, compat_key, key))
            rows.append(Located(value is not None, len(value or b""), self.load_us(key) if value is not None else 0))
            if prefix and value is None:
                break
        return rows

    def load(self, model, compat_key, keys, targets):
        """Copies what is there, `"miss"` for the rest."""
        self._called("load", keys)
        answers = []
        for key, target in zip(keys, targets, strict=True):
            value = None if self.trouble or self.lost(key) else self.values.get((model, compat_key, key))
            at = 0
            for part in target if value is not None else ():
                part[:] = value[at : at + len(part)]
                at += len(part)
            answers.append(None if value is not None else "miss")
        return answers

    def save(self, model, compat_key, keys, sources, *, retention, ttl, lineages):
        """Takes what is not refused."""
        self._called("save", keys)
        assert len(lineages) == len(keys)
        answers = []
        for key, source in zip(keys, sources, strict=True):
            taken = not self.trouble and key not in self.refused
            if taken:
                self.values[(model, compat_key, key)] = b"".join(bytes(part) for part in source)
            answers.append(None if taken else "refused")
        return answers

    def close(self):
        """The end."""
        self.closed = True

    def _called(self, name, keys):
        with self._lock:
            self.calls.append((name, list(keys)))
        if self.fault is not None:
            raise self.fault


class Log:
    """Lines as (level, text)."""

    def __init__(self):
        self.lines = []

    def warning(self, text, *values):
        """One line."""
        self.lines.append(("warning", text % values))

    def error(self, text, *values, exc_info=None):
        """One line."""
        self.lines.append(("error", text % values))

    def info(self, text, *values):
        """One line."""
        self.lines.append(("info", text % values))

    def debug(self, text, *values):
        """One line."""
        self.lines.append(("debug", text % values))

"""What people may set: for an engine in `kv_connector_extra_config`, for a request in `kv_transfer_params`.

Both are checked as a whole and every mistake is named. An engine with mistakes runs without the connector; a request
with mistakes is answered as usual and nothing of it is stored, because what it asked for is not known.
"""

import dataclasses

from infera_kvd.engine.errors import OptionError

RETENTIONS = ("none", "ephemeral", "short", "long")
DEFAULT_RETENTION = "long"
TTL_SECONDS_MAX = 10 * 365 * 24 * 3600
REQUEST_RETENTION = "infera_retention"
REQUEST_TTL = "infera_ttl_seconds"
# Mistakes in requests are shown one by one up to here: a client that always makes one must not fill the log.
MISTAKES_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Options:
    """What an engine was told. `None` where the client's own default holds."""

    socket: str | None = None
    model: str | None = None
    weights_id: str | None = None
    retention: str = DEFAULT_RETENTION
    ttl_seconds: float | None = None
    deadline_seconds: float = 1.0
    save_queue_blocks: int = 8192
    save_drain_seconds: float = 5.0


@dataclasses.dataclass(frozen=True)
class Keep:
    """How long the blocks of one request are worth keeping. `stored`: false if nothing of it may be stored."""

    retention: str = DEFAULT_RETENTION
    ttl_seconds: float | None = None
    stored: bool = True


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value):
    return isinstance(value, str) and value != ""


def _seconds(value, most):
    return _is_number(value) and 0 < value <= most


_CHECKS = {
    "socket": (_text, "a path"),
    "model": (_text, "a name"),
    "weights_id": (_text, "a text"),
    "retention": (lambda value: value in RETENTIONS, f"one of {', '.join(RETENTIONS)}"),
    "ttl_seconds": (lambda value: _seconds(value, TTL_SECONDS_MAX), "a number of seconds above 0"),
    "deadline_seconds": (lambda value: _seconds(value, 60), "a number above 0, at most 60"),
    "save_queue_blocks": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1 << 20,
        "a whole number from 1 to 1048576",
    ),
    "save_drain_seconds": (lambda value: _is_number(value) and 0 <= value <= 600, "a number from 0 to 600"),
}


def engine_options(extra):
    """The options of an engine from its `kv_connector_extra_config`.

    Raises `OptionError` that lists every unknown name and every value that is not allowed.
    """
    mistakes = []
    for name, value in sorted(extra.items()):
        check = _CHECKS.get(name)
        if check is None:
            mistakes.append(f"{name} is not known (known: {', '.join(_CHECKS)})")
        elif not check[0](value):
            mistakes.append(f"{name} is {value!r}, expected {check[1]}")
    if mistakes:
        raise OptionError("; ".join(mistakes))
    return Options(**extra)


def request_keep(parameters, options):
    """What a request's `kv_transfer_params` ask for: how it is kept, and what was wrong with them or `None`."""
    if not isinstance(parameters, dict):
        return Keep(options.retention, options.ttl_seconds), None
    retention = parameters.get(REQUEST_RETENTION, options.retention)
    ttl = parameters.get(REQUEST_TTL, options.ttl_seconds)
    mistakes = []
    if not (isinstance(retention, str) and _CHECKS["retention"][0](retention)):
        mistakes.append(f"{REQUEST_RETENTION} is {retention!r}, expected {_CHECKS['retention'][1]}")
    if ttl is not None and not _CHECKS["ttl_seconds"][0](ttl):
        mistakes.append(f"{REQUEST_TTL} is {ttl!r}, expected {_CHECKS['ttl_seconds'][1]}")
    if mistakes:
        return Keep(stored=False), "; ".join(mistakes)
    return Keep(retention, ttl), None


class Keeps:
    """How the blocks of each request of an engine are kept; says what is wrong with what requests ask for."""

    def __init__(self, options, log):
        self._options = options
        self._log = log
        self._mistakes = 0

    def of(self, request_id, parameters):
        """The `Keep` of one request. `parameters`: its `kv_transfer_params`."""
        keep, mistake = request_keep(parameters, self._options)
        if mistake and self._mistakes < MISTAKES_SHOWN:
            self._mistakes += 1
            self._log.warning("infera-kvd: nothing of request %s is stored: %s", request_id, mistake)
        return keep

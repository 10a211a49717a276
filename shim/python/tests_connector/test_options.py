"""What people may set, and what they are told when they err."""

import pytest

from infera_kvd.engine.errors import OptionError
from infera_kvd.engine.options import Keep, Options, engine_options, request_keep


def test_nothing_set_means_the_defaults():
    assert engine_options({}) == Options()
    assert request_keep(None, Options()) == (Keep("long", None), None)


def test_what_is_set_counts():
    options = engine_options({"socket": "/run/kvd.sock", "retention": "short", "ttl_seconds": 60})
    assert (options.socket, options.retention, options.ttl_seconds) == ("/run/kvd.sock", "short", 60)
    assert request_keep({}, options) == (Keep("short", 60), None)
    asked = {"infera_retention": "ephemeral", "infera_ttl_seconds": 1.5, "of_somebody_else": 1}
    assert request_keep(asked, options) == (Keep("ephemeral", 1.5), None)


def test_all_mistakes_are_named_together():
    with pytest.raises(OptionError) as caught:
        engine_options({"sokcet": "/x", "retention": "forever", "deadline_seconds": True})
    for word in ("sokcet", "forever", "deadline_seconds"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "extra",
    [
        {"socket": ""},
        {"ttl_seconds": 0},
        {"ttl_seconds": float("nan")},
        {"ttl_seconds": float("inf")},
        {"save_queue_blocks": 0},
        {"save_queue_blocks": 1.5},
        {"save_drain_seconds": -1},
        {"weights_id": 7},
    ],
)
def test_values_out_of_bounds_are_refused(extra):
    with pytest.raises(OptionError):
        engine_options(extra)


@pytest.mark.parametrize(
    "asked",
    [
        {"infera_retention": "nonee"},
        {"infera_retention": ["short"]},
        {"infera_retention": None},
        {"infera_ttl_seconds": "60"},
        {"infera_ttl_seconds": -1},
        {"infera_ttl_seconds": False},
    ],
)
def test_of_a_request_with_a_mistake_nothing_is_stored(asked):
    keep, mistake = request_keep(asked, Options())
    assert not keep.stored
    assert next(iter(asked)) in mistake

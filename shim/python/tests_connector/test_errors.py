"""Why an engine runs without us is one line."""

import logging

import pytest

from infera_kvd.engine.errors import OptionError, Refused, say_unused


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Refused("layer l is on cuda"), "infera-kvd is not used: layer l is on cuda"),
        (OptionError("socket is 3"), "infera-kvd is not used: socket is 3"),
        (KeyError("quantum"), "infera-kvd is not used: KeyError: 'quantum'"),
    ],
)
def test_only_what_nobody_expected_is_said_with_its_place(caplog, error, line):
    say_unused(logging.getLogger("test"), error)
    (record,) = caplog.records
    assert record.getMessage() == line
    assert bool(record.exc_info) is not isinstance(error, (Refused, OptionError))

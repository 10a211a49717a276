"""Which releases are served; every other one gets a line that says so."""

import pytest

from infera_kvd.sglang.served import LINKER, STORAGE, refusal


@pytest.mark.parametrize("version", ["0.5.16", "0.5.20", "0.5.23", "0.5.23.post1"])
def test_the_tested_releases_are_served(version):
    assert refusal(version, STORAGE) is None


@pytest.mark.parametrize("version", ["0.5.15", "0.5.24", "0.6.0", "0.5.24.dev3", "1.0.0", "main", "0.0.0.dev0", ""])
def test_others_are_refused_in_one_line(version):
    reason = refusal(version, STORAGE)
    assert "0.5.16 to 0.5.23" in reason
    assert "\n" not in reason


def test_the_linker_needs_a_release_that_loads_one():
    assert refusal("0.5.23", LINKER) is None
    assert "only 0.5.23" in refusal("0.5.22", LINKER)


def test_adapters_need_a_release_that_tells_them_apart():
    assert "LoRA" in refusal("0.5.19", STORAGE, lora=True)
    assert refusal("0.5.20", STORAGE, lora=True) is None

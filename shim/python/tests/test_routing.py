"""What routers call blocks."""

import pytest
from infera_kvd import router_hashes


def test_blocks_are_called_by_their_tokens_and_those_before():
    names = [0x341839ABBE30BE0B, 0x37B6DE0623BDB5CA]
    assert router_hashes(range(1, 11), 4) == names
    assert router_hashes(range(5, 11), 4, parent=names[0]) == names[1:]
    assert router_hashes([4294967295, 0, 151643, 200019], 4) == [0x45329D38CB2E925F]


def test_adapters_and_tenants_have_names_of_their_own():
    assert router_hashes([1, 2, 3, 4], 4, lora="sql") == [0x73D9E46CCEC15134]
    assert router_hashes([1, 2, 3, 4], 4, salt="t1") == [0xFF5134996972A6D8]


def test_a_rest_has_no_name():
    assert router_hashes([1, 2, 3], 4) == []
    assert router_hashes([], 4) == []
    assert router_hashes([1, 2, 3], 0) == []


@pytest.mark.parametrize("tokens", [[-1], [2**32], ["a"], None])
def test_what_is_no_token_is_refused(tokens):
    with pytest.raises((TypeError, OverflowError)):
        router_hashes(tokens, 4)

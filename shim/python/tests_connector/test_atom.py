"""ATOM's connector against stand-ins: what it registers, what it refuses, and whole runs of an engine of two ranks."""

import importlib
import importlib.metadata
import logging
import random
import sys
import types

import atom_engine
import pytest
from atom_engine import BLOCK_TOKENS, Engine, Sequence
from stand_ins import Client

import infera_kvd

BLOCKS = 40
MISSING = object()
CONFIG = {
    "kv_cache_block_size": BLOCK_TOKENS,
    "kv_cache_dtype": "bf16",
    "tensor_parallel_size": atom_engine.RANKS,
    "kv_transfer_config": {"kv_connector": "infera_kvd", "kv_connector_extra_config": {"weights_id": "w"}},
    "model": "org/model",
}


def config(**changes):
    """ATOM's configuration."""
    model = types.SimpleNamespace(to_dict=lambda: {"hidden_size": 8}, layer_types=None)
    known = {"hf_config": model, **CONFIG, **changes}
    return types.SimpleNamespace(**{name: value for name, value in known.items() if value is not MISSING})


@pytest.fixture(autouse=True)
def atom(monkeypatch):
    """Stand-ins for ATOM; the connector's modules are loaded anew for each test."""
    for name, module in atom_engine.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in [name for name in sys.modules if name.startswith("infera_kvd.atom")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.0")
    yield
    for name in [name for name in sys.modules if name.startswith("infera_kvd.atom")]:
        del sys.modules[name]


@pytest.fixture
def store(monkeypatch):
    """The daemon of all clients that are made."""
    client = Client()
    monkeypatch.setattr(infera_kvd, "Client", lambda *_, **__: client, raising=False)
    monkeypatch.setattr(infera_kvd, "Lineage", lambda *_, **__: "lineage", raising=False)
    return client


def prompt(length, seed=0):
    """Tokens."""
    return random.Random(seed).choices(range(1000), k=length)


def life(*sequences, seed=0, **changes):
    """One engine with these requests, from its start to its end."""
    engine = Engine(config(**changes), random.Random(seed), BLOCKS)
    try:
        engine.run(*sequences)
    finally:
        engine.close()
    assert sorted(engine.free) == list(range(BLOCKS))
    return engine


def test_importing_registers_the_backend():
    importlib.import_module("infera_kvd.atom")
    registry = sys.modules["atom.kv_transfer.disaggregation.factory"].KVConnectorFactory.registry
    for module, name in registry["infera_kvd"].values():
        kind = getattr(importlib.import_module(module), name)
        assert kind.__abstractmethods__ == frozenset()


def test_without_atom_the_plain_modules_can_be_used(monkeypatch):
    for name in atom_engine.modules():
        monkeypatch.delitem(sys.modules, name)
    assert importlib.import_module("infera_kvd.atom").BACKEND == "infera_kvd"
    importlib.import_module("infera_kvd.atom.plan")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("infera_kvd.atom").register()


def test_a_prompt_is_found_after_a_restart(store):
    tokens = prompt(26)
    cold = life(Sequence(1, tokens, 3))
    assert cold.loaded_tokens == 0
    assert len(store.values) == 26 // BLOCK_TOKENS * atom_engine.RANKS
    warm = life(Sequence(1, tokens, 3))
    assert warm.loaded_tokens == 24
    assert warm.computed_tokens == cold.computed_tokens - 24
    assert len(store.values) == 26 // BLOCK_TOKENS * atom_engine.RANKS


def test_the_last_token_is_computed(store):
    tokens = prompt(24)
    life(Sequence(1, tokens, 0))
    assert life(Sequence(1, tokens, 0)).loaded_tokens == 20


def test_a_prompt_of_another_beginning_shares_nothing(store):
    tokens = prompt(24)
    life(Sequence(1, tokens, 0))
    assert life(Sequence(1, [7, *tokens[1:]], 0)).loaded_tokens == 0


def test_a_block_that_one_rank_cannot_load_is_computed_and_stored_again(store):
    tokens = prompt(26)
    life(Sequence(1, tokens, 0))
    # It is located and gone when it is to be loaded.
    (_, compat_key, lost) = sorted(store.values)[7]
    store.lost = lambda key: key == lost
    engine = life(Sequence(1, tokens, 2))
    assert engine.loaded_tokens == 0
    store.lost = lambda key: False
    assert life(Sequence(1, tokens, 2)).loaded_tokens == 24


def test_a_wrong_block_is_noticed_by_the_engine_that_these_tests_rely_on(store):
    tokens = prompt(26)
    life(Sequence(1, tokens, 0))
    key = sorted(store.values)[0]
    store.values[key] = bytes(len(store.values[key]))
    with pytest.raises(AssertionError, match="request 1"):
        life(Sequence(1, tokens, 2))


def test_without_a_daemon_the_engine_computes(store):
    store.trouble = "no daemon"
    engine = life(Sequence(1, prompt(26), 3), Sequence(2, prompt(9, 1), 1))
    assert engine.loaded_tokens == 0
    assert store.values == {}


@pytest.mark.parametrize("fault", [RuntimeError("broken"), MemoryError()])
def test_a_client_that_raises_ends_nothing(store, fault):
    store.fault = fault
    assert life(Sequence(1, prompt(26), 3)).loaded_tokens == 0


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_each_request_is_computed_from_right_blocks(store, seed):
    chance = random.Random(seed)
    store.lost = lambda key: chance.random() < 0.05
    documents = [prompt(chance.randrange(8, 40), number) for number in range(4)]
    loaded = 0
    for number in range(2):
        sequences = [
            Sequence(
                10 * number + each,
                chance.choice(documents)[: chance.randrange(6, 41)] + prompt(chance.randrange(6), each),
                chance.randrange(12),
                {"infera_retention": chance.choice(["long", "none", "bad"])} if chance.random() < 0.2 else None,
            )
            for each in range(8)
        ]
        loaded += life(*sequences, seed=seed).loaded_tokens
    assert loaded > 0


def test_requests_that_are_preempted_while_they_are_saved_leave_no_wrong_block(store):
    preempted = 0
    for seed in range(6):
        sequences = [Sequence(each, prompt(30, 100 * seed + each), 20) for each in range(6)]
        preempted += life(*sequences, seed=seed).preemptions
        life(*(Sequence(each, prompt(30, 100 * seed + each), 1) for each in range(6)))
    assert preempted > 0


def test_images_are_neither_asked_for_nor_stored(store):
    tokens = prompt(26)
    life(Sequence(1, tokens, 0))
    stored = dict(store.values)
    seq = Sequence(2, tokens, 0)
    seq.multimodal_data = {"image": 1}
    assert life(seq).loaded_tokens == 0
    assert store.values == stored


@pytest.mark.parametrize(("role", "loads", "saves"), [("kv_producer", False, True), ("kv_consumer", True, False)])
def test_a_role_is_half_of_the_work(store, role, loads, saves):
    tokens = prompt(26)
    life(Sequence(1, tokens, 0))
    transfer = {**CONFIG["kv_transfer_config"], "kv_role": role}
    stored = len(store.values)
    engine = life(Sequence(1, tokens, 0), Sequence(2, prompt(26, 1), 0), kv_transfer_config=transfer)
    assert engine.loaded_tokens == (24 if loads else 0)
    assert len(store.values) == (2 * stored if saves else stored)


def test_a_cache_on_a_device_is_refused_in_one_line_and_the_engine_computes(store, monkeypatch, caplog):
    tokens = prompt(26)
    life(Sequence(1, tokens, 0))
    monkeypatch.setattr(
        atom_engine, "caches", lambda blocks, device="cuda", real=atom_engine.caches: real(blocks, device)
    )
    with caplog.at_level(logging.ERROR, "atom.infera_kvd"):
        # The scheduler, which does not know, has it wait for loads that fail.
        engine = life(Sequence(1, tokens, 3), Sequence(2, prompt(26, 1), 3))
    assert engine.loaded_tokens == 0
    said = {record.getMessage() for record in caplog.records}
    assert said == {
        "infera-kvd is not used: layer layer.0 is on cuda: this release copies from and to host memory only"
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"decode_context_parallel_size": 2}, "context parallelism"),
        ({"speculative_config": object()}, "draft model"),
        ({"hf_config": types.SimpleNamespace(layer_types=["full_attention", "sliding_attention"])}, "sliding_attention"),
        ({"hf_config": types.SimpleNamespace(compress_ratios=[4])}, "compressed attention"),
        ({"kv_transfer_config": {"kv_role": "both"}}, "kv_role is 'both'"),
        ({"kv_transfer_config": {"kv_connector_extra_config": {"sokcet": "x"}}}, "sokcet is not known"),
        ({"kv_transfer_config": None}, "set weights_id"),
        ({"kv_cache_dtype": MISSING}, "configuration has no kv_cache_dtype"),
    ],
)
def test_what_is_not_served_is_refused_in_one_line_and_the_engine_computes(store, caplog, changes, said):
    with caplog.at_level(logging.ERROR, "atom.infera_kvd"):
        assert life(Sequence(1, prompt(26), 3), **changes).loaded_tokens == 0
    (line,) = {record.getMessage() for record in caplog.records}
    assert said in line
    assert "\n" not in line
    assert store.calls == []


def test_an_atom_with_other_requests_is_refused_in_one_line_and_computes(store, caplog):
    class Other(Sequence):
        def __getattribute__(self, name):
            if name == "multimodal_data":
                raise AttributeError(name)
            return super().__getattribute__(name)

    with caplog.at_level(logging.ERROR, "atom.infera_kvd"):
        assert life(Other(1, prompt(26), 3), Other(2, prompt(26), 3)).loaded_tokens == 0
    (line,) = [record.getMessage() for record in caplog.records]
    assert "request has no multimodal_data" in line
    assert store.calls == []


def test_an_atom_that_is_not_installed_is_refused(store, monkeypatch, caplog):
    def unknown(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", unknown)
    assert life(Sequence(1, prompt(26), 3)).loaded_tokens == 0
    assert "its version is not known" in caplog.text


def test_a_mistake_in_a_request_is_said_and_nothing_of_it_is_stored(store, caplog):
    life(Sequence(1, prompt(26), 0, {"infera_ttl_seconds": -1}))
    assert "nothing of request 1 is stored: infera_ttl_seconds is -1" in caplog.text
    assert store.values == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_cache_block_size": 8},
        {"kv_cache_dtype": "fp8"},
        {"tensor_parallel_size": 4},
        {"online_quant_config": {"layers": "all"}},
        {"max_model_len": 131072},
        {"hf_config": types.SimpleNamespace(to_dict=lambda: {"hidden_size": 16})},
        {"kv_transfer_config": {"kv_connector_extra_config": {"weights_id": "other"}}},
    ],
)
def test_what_decides_about_the_bytes_is_in_the_name(monkeypatch, changes):
    from infera_kvd.atom import environment
    from infera_kvd.engine.options import engine_options

    def names(configuration):
        shards, _ = environment.shards(configuration, engine_options(environment.extra(configuration)))
        return [shard.compat_key for shard in shards]

    plain = names(config())
    assert plain == names(config())
    assert len(set(plain)) == atom_engine.RANKS
    assert not set(names(config(**changes))) & set(plain)
    monkeypatch.setenv("ATOM_MLA_PAGE_SIZE", "64")
    assert not set(names(config())) & set(plain)


def test_planes_that_are_not_blocks_in_one_run_are_refused():
    from infera_kvd.atom import layout
    from infera_kvd.engine.errors import Refused

    tensor = atom_engine.Tensor(4, 6)
    found = layout.planes({"a": types.SimpleNamespace(k_cache=tensor, v_cache=None)}, 8)
    assert [plane.bytes for plane in found] == [3]
    found[0].block(1)[:] = b"xyz"
    assert bytes(tensor.memory)[3:6] == b"xyz"
    for cache, said in (
        ({"k_cache": atom_engine.Tensor(4, 6, contiguous=False)}, "in one run"),
        ({"k_cache": tensor, "v_cache": atom_engine.Tensor(5, 5)}, "v_cache"),
        ({"per_request_state": True}, "state of each request"),
        ({}, "no layer with a cache"),
    ):
        with pytest.raises(Refused, match=said):
            layout.planes({"a": types.SimpleNamespace(**cache)}, 8)

"""Engines that compute other numbers from the same files are told apart."""

import importlib
import sys
import types

import pytest

from infera_kvd.engine.options import Options
from infera_kvd.vllm import layout

SEEN = Options(weights_id="w")


@pytest.fixture
def environment(monkeypatch):
    """The module, where there is neither torch nor vLLM."""
    groups = {"get_tp_group": None, "get_pp_group": None}
    stand_ins = {"torch": {}, "vllm": {"__version__": "0.32.0"}, "vllm.distributed.parallel_state": groups}
    for name, content in stand_ins.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "infera_kvd.vllm.environment", raising=False)
    module = importlib.import_module("infera_kvd.vllm.environment")
    monkeypatch.delitem(sys.modules, "infera_kvd.vllm.environment")
    return module


def engine(lora=None, **changes):
    """What is read of vLLM's configuration."""
    model = {
        "hf_config": types.SimpleNamespace(to_dict=lambda: {"layers": 2}),
        "dtype": "bfloat16",
        "quantization": None,
        "quantization_config": None,
        "max_model_len": 4096,
        "multimodal_config": None,
    }
    return types.SimpleNamespace(model_config=types.SimpleNamespace(**model | changes), lora_config=lora)


def adapters(modules=None):
    """Adapters of which some modules are used, all of them if that is not said."""
    return types.SimpleNamespace(lora_dtype="bfloat16", target_modules=modules)


@pytest.mark.parametrize(
    "other",
    [
        engine(hf_config=types.SimpleNamespace(to_dict=lambda: {"layers": 2, "rope_parameters": {"factor": 8}})),
        # LongRoPE takes other factors for a longer context, and keeps the configuration as it is.
        engine(max_model_len=131072),
        engine(quantization="online", quantization_config={"linear": "fp8"}),
        engine(multimodal_config=types.SimpleNamespace(mm_processor_kwargs={"do_normalize": False})),
        engine(adapters()),
    ],
)
def test_what_changes_the_numbers_is_seen(environment, other):
    assert environment.computation(other, SEEN) != environment.computation(engine(), SEEN)


def test_engines_that_use_other_parts_of_an_adapter_are_told_apart(environment):
    some, more = (environment.computation(engine(adapters(modules)), SEEN) for modules in (["q"], ["q", "v"]))
    assert some != more
    assert environment.computation(engine(adapters(["v", "q"])), SEEN) == more


@pytest.mark.parametrize(
    ("sizes", "replicated", "names"),
    [((1, 1), False, 1), ((2, 1), False, 2), ((2, 1), True, 1), ((2, 2), False, 4), ((2, 2), True, 2)],
)
def test_ranks_are_told_apart_by_the_end_of_their_names(environment, monkeypatch, sizes, replicated, names):
    keys = {shard_of(environment, monkeypatch, (tp, pp), sizes, replicated) for pp in range(sizes[1]) for tp in range(sizes[0])}
    assert len(keys) == names
    assert len({key.partition("-tp")[0] for key in keys}) == 1
    # Another number of ranks, and a whole that is stored once for several ranks, is another family.
    for other in ((4, 1), (1, 4)):
        assert not shard_of(environment, monkeypatch, (0, 0), other, replicated).startswith(min(keys).partition("-tp")[0])


def test_another_split_of_layers_is_another_family(environment, monkeypatch):
    before = shard_of(environment, monkeypatch, (0, 0), (1, 2), False).partition("-tp")[0]
    monkeypatch.setenv("VLLM_PP_LAYER_PARTITION", "1,3")
    assert not shard_of(environment, monkeypatch, (0, 0), (1, 2), False).startswith(before)


def shard_of(environment, monkeypatch, place, sizes, replicated):
    """The name of one rank's part, each stage with a layer of its own."""
    for name, rank, size in zip(("get_tp_group", "get_pp_group"), place, sizes, strict=True):
        group = types.SimpleNamespace(rank_in_group=rank, world_size=size)
        monkeypatch.setattr(environment, name, lambda group=group: group)
    config = engine(model="m")
    config.cache_config = types.SimpleNamespace(cache_dtype="auto")
    config.compilation_config = types.SimpleNamespace(static_forward_context={})
    group = types.SimpleNamespace(kv_cache_spec=types.SimpleNamespace(block_size=16))
    cache = types.SimpleNamespace(kv_cache_groups=[group], kv_cache_layout="NHD")
    layer = layout.Layer(f"layers.{place[1]}", "cuda", "bfloat16", 2, (8, 16, 64), (1024, 64, 1), 4096)
    shard, _ = environment.shard(config, cache, [layer], [], SEEN, replicated)
    return shard.compat_key

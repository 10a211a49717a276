"""Engines that compute other numbers from the same files are told apart."""

import importlib
import sys
import types

import pytest

from infera_kvd.engine.options import Options

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

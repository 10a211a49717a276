"""What our connectors take the engines for, against what released versions of them declare. No engine is needed.

The contracts and the programs that read sources are in `tests/engines/contracts`.
"""

import copy
import importlib
import json
import pathlib
import sys
import types

import pytest

CONTRACTS = pathlib.Path(__file__).resolve().parents[3] / "tests/engines/contracts"
sys.path.insert(0, str(CONTRACTS))

import compare  # noqa: E402
import uses  # noqa: E402

PATHS = sorted(CONTRACTS.glob("*.json"), key=lambda path: path.stem)
BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base.KVConnectorBase_V1"
REQUEST = "vllm.v1.request.Request"


def contract_of(path):
    """A contract, its engine and whether we serve that release."""
    contract = json.loads(path.read_text())
    engine = path.stem.partition("-")[0]
    return engine, contract, contract["version"].startswith(uses.served(engine))


@pytest.fixture
def vllm():
    """What we use of vLLM, and a contract of it to be spoiled."""
    return uses.of_engine("vllm"), json.loads((CONTRACTS / "vllm-0.32.0.json").read_text())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_release_that_we_serve_is_what_we_take_it_for(path):
    engine, contract, is_served = contract_of(path)
    problems = compare.problems(uses.of_engine(engine), contract)
    if not is_served:
        # Whatever else differs: our modules must load to say that they stay out.
        problems = [problem for problem in problems if problem.endswith("is not there") or "abstract" in problem]
    assert problems == []


@pytest.mark.parametrize("engine", uses.TABLES)
def test_each_release_that_we_serve_has_a_contract(engine):
    versions = [json.loads(path.read_text())["version"] for path in PATHS if path.stem.startswith(f"{engine}-")]
    for beginning in uses.served(engine):
        assert any(version.startswith(beginning) for version in versions), f"{engine} {beginning}x"


@pytest.mark.parametrize("engine", uses.TABLES)
def test_each_name_that_the_table_explains_is_read(engine):
    read = {read.of for read in uses.of_engine(engine).reads}
    assert {of for of in uses.TABLES[engine].values() if of} <= read


def test_uses_are_found_in_the_source(vllm):
    ours, _ = vllm
    assert BASE in ours.imports
    assert "vllm.__version__" in ours.imports
    assert any(read.of == REQUEST and read.attribute == "block_hashes" for read in ours.reads)
    assert any(call.of.endswith("create_metric_per_engine") for call in ours.calls)
    (connector,) = [each for each in ours.subclasses if BASE in each.bases]
    assert "start_load_kv" in connector.methods
    assert "_get_connector_metadata" in connector.wanted


def _without_method(contract):
    del contract["classes"][BASE]["methods"]["handle_preemptions"]


def _without_private_attribute(contract):
    contract["classes"][BASE]["attributes"].remove("_kv_transfer_config")


def _with_renamed_parameter(contract):
    contract["classes"][BASE]["methods"]["get_num_new_matched_tokens"] = "self, request, num_tokens"


def _with_new_parameter(contract):
    contract["classes"][BASE]["methods"]["wait_for_save"] = "self, step="


def _with_swapped_parameters(contract):
    contract["classes"][BASE]["methods"]["request_finished"] = "self, block_ids, request"


def _with_abstract_method(contract):
    contract["classes"][BASE]["abstract"].append("something_new")


def _without_attribute(contract):
    contract["classes"][REQUEST]["attributes"].remove("block_hashes")


def _without_function(contract):
    contract["missing"].append("vllm.logger.init_logger")
    del contract["functions"]["vllm.logger.init_logger"]


def _with_other_function(contract):
    contract["functions"]["vllm.logger.init_logger"] = "name, level"


def _with_other_constructor(contract):
    contract["classes"][BASE]["methods"]["__init__"] = "self, vllm_config, role"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_without_method, "defines handle_preemptions, which is not the engine's"),
        (_without_private_attribute, "takes self._kv_transfer_config, which nobody defines"),
        (_with_renamed_parameter, "has no num_tokens"),
        (_with_new_parameter, "has no step"),
        (_with_swapped_parameters, "has block_ids in another place"),
        (_with_abstract_method, "does not define something_new, which is abstract"),
        (_without_attribute, f"{REQUEST} has no block_hashes"),
        (_without_function, "vllm.logger.init_logger is not there"),
        (_with_other_function, "needs level"),
        (_with_other_constructor, "takes 2 arguments by place, not 3"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_a_release_that_differs_is_noticed(vllm, spoil, said):
    ours, contract = vllm
    spoiled = copy.deepcopy(contract)
    spoil(spoiled)
    assert any(said in problem for problem in compare.problems(ours, spoiled))


def test_what_nobody_extracted_is_told_from_what_is_not_there(vllm):
    ours, contract = vllm
    del contract["functions"]["vllm.logger.init_logger"]
    assert any("run extract.py" in problem for problem in compare.problems(ours, contract))


def test_an_import_that_is_tried_may_be_missing():
    ours = uses.Uses()
    source = "try:\n    from vllm.a import B\nexcept ImportError:\n    B = None\nprint(B.C)\n"
    uses.add_module(ours, "vllm", "ours.py", source, {})
    contract = {"classes": {}, "functions": {}, "values": [], "missing": ["vllm.a.B"]}
    assert compare.problems(ours, contract) == []
    there = {**contract, "missing": [], "classes": {"vllm.a.B": {"abstract": [], "attributes": [], "methods": {}}}}
    assert compare.problems(ours, there) == ["ours.py:5: vllm.a.B has no C"]


@pytest.mark.parametrize(
    ("ours", "base", "why"),
    [
        ("self, a, b=", "self, a", []),
        ("self, a, **kwargs", "self, a, b=, c=", []),
        ("self, a", "self, a, **kwargs", ["takes no **kwargs"]),
        ("self, a, b", "self, a", ["needs b"]),
        ("self, a", "self, a=", ["has no default for a"]),
        ("self, b, a", "self, a, b", ["has a in another place", "has b in another place"]),
        ("self, *, a", "self, *, a", []),
        ("self", "self, *rest", ["takes no *args"]),
    ],
)
def test_overrides(ours, base, why):
    assert compare.override_mismatch(ours, base) == why


@pytest.mark.parametrize(
    ("positional", "names", "accepted", "why"),
    [
        (1, (), "a, b=", []),
        (1, ("b",), "a, b=", []),
        (0, ("a",), "a, b", ["needs b"]),
        (3, (), "a, b", ["takes 2 arguments by place, not 3"]),
        (3, (), "a, *rest", []),
        (1, ("c",), "a, *, b=", ["has no c"]),
        (1, ("c",), "a, **more", []),
        (None, (), "a", []),
    ],
)
def test_calls(positional, names, accepted, why):
    assert compare.mismatch(uses.Call("f", positional, names, "here"), accepted) == why


@pytest.mark.parametrize("version", ["0.29.1", "0.33.0", "1.0.0"])
def test_a_release_that_we_do_not_serve_is_refused_in_one_line(monkeypatch, version):
    groups = {"get_tp_group": None, "get_pp_group": None}
    stand_ins = {"torch": {}, "vllm": {"__version__": version}, "vllm.distributed.parallel_state": groups}
    for name, content in stand_ins.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "infera_kvd.vllm.environment", raising=False)
    environment = importlib.import_module("infera_kvd.vllm.environment")
    monkeypatch.delitem(sys.modules, "infera_kvd.vllm.environment")
    reason = environment.refusal(types.SimpleNamespace())
    assert reason.startswith(f"vLLM {version} is not served (only 0.3")
    assert "\n" not in reason

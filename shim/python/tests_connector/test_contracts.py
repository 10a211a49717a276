"""What our connectors take the engines for, against what released versions of them declare. No engine is needed.

The contracts and the programs that read sources are in `tests/engines/contracts`.
"""

import ast
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
from facts import Package  # noqa: E402
from meanings import COMPONENTS, MEANINGS  # noqa: E402

from infera_kvd.sglang import served as sglang_served  # noqa: E402

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base.KVConnectorBase_V1"
REQUEST = "vllm.v1.request.Request"


def contracts(engine):
    """What is checked in of an engine, by version."""
    texts = [path.read_text() for path in sorted(CONTRACTS.glob(f"{engine}-*.json"))]
    return {contract["version"]: contract for contract in map(json.loads, texts)}


def is_served(component, version):
    """Whether our modules say so."""
    if component.startswith("sglang"):
        ways = {"sglang storage": sglang_served.STORAGE, "sglang linker": sglang_served.LINKER}
        return sglang_served.refusal(version, ways[component]) is None
    return version.startswith(vllm_series(component))


def vllm_series(component):
    """How the versions of vLLM begin that are served; read, because the module needs vLLM."""
    module = {"vllm connector": "environment", "vllm tier": "tier_environment"}[component]
    for statement in ast.parse((uses.SOURCE / f"vllm/{module}.py").read_text()).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "SERVED":
            return ast.literal_eval(statement.value)
    raise AssertionError(f"no SERVED in {module}.py")


def may_hinder(ours, problem):
    """Whether a problem may keep our modules from being loaded and our objects from being made."""
    bases = [f" {base}(" for each in ours.subclasses for base in each.bases]
    return any(said in problem for said in ("is not there", "which is abstract", *bases))


RELEASES = [
    pytest.param(component, version, id=f"{component} in {version}")
    for component, (engine, _) in COMPONENTS.items()
    for version in contracts(engine)
]


@pytest.fixture
def vllm():
    """What our connector uses of vLLM, and a contract of it to be spoiled."""
    return uses.of_component("vllm connector"), contracts("vllm")["0.32.0"]


@pytest.mark.parametrize(("component", "version"), RELEASES)
def test_a_release_that_we_serve_is_what_we_take_it_for(component, version):
    ours = uses.of_component(component)
    problems = compare.problems(ours, contracts(COMPONENTS[component][0])[version])
    if not is_served(component, version):
        # Whatever else differs: we must come as far as to say that we stay out. Of a linker nobody asks then.
        problems = [each for each in problems if component != "sglang linker" and may_hinder(ours, each)]
    assert problems == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_release_that_we_serve_has_a_contract(component):
    assert any(is_served(component, version) for version in contracts(COMPONENTS[component][0]))


@pytest.mark.parametrize("component", ["vllm connector", "vllm tier"])
def test_each_series_of_vllm_that_we_serve_has_a_contract(component):
    versions = contracts("vllm")
    series = vllm_series(component)
    assert [each for each in series if not any(version.startswith(each) for version in versions)] == []


@pytest.mark.parametrize("engine", MEANINGS)
def test_each_meaning_is_met_in_the_source(engine):
    read = {read.of for name, (of, _) in COMPONENTS.items() if of == engine for read in uses.of_component(name).reads}
    assert {of for of in MEANINGS[engine].values() if of} <= read


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
    about = contract["classes"][REQUEST]
    about["attributes"].remove("block_hashes")
    about["absent"].append("block_hashes")


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
    contract["classes"][REQUEST]["attributes"].remove("block_hashes")
    told = [problem.partition(": ")[2] for problem in compare.problems(ours, contract)]
    assert set(told) == {
        f"{name} is not in the contract: run extract.py" for name in ("vllm.logger.init_logger", f"{REQUEST}.block_hashes")
    }


def test_what_a_package_declares_is_read_from_its_source(tmp_path):
    package = tmp_path / "vllm"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("from .deep import Child as Kid\nfrom vllm.deep.base import helper\nimport os\n")
    (package / "deep/__init__.py").write_text(
        "from vllm.deep.base import Base, Record\n\nclass Child(Base):\n    def run(self): pass\n"
    )
    (package / "deep/base.py").write_text(
        """
import abc, dataclasses, typing
try:
    from numpy import array
except ImportError:
    array = None
class Base(abc.ABC):
    kind = 1
    def __init__(self, a, b=2, *, c, **more):
        self.a, self._b = a, b
    @abc.abstractmethod
    def run(self): ...
    @property
    @abc.abstractmethod
    def size(self): ...
    @classmethod
    def make(cls, *rest): ...
@dataclasses.dataclass(frozen=True)
class Record:
    one: int
    two: list = dataclasses.field(default_factory=list)
    last: int = dataclasses.field(kw_only=True)
    hidden: int = dataclasses.field(init=False)
    shared: typing.ClassVar[int] = 3
Record = wrap(Record)
def helper(x, /, y=1): ...
"""
    )
    read = Package(tmp_path)
    inherited = {"__init__": "self, a, b=, *, c, **more", "make": "cls, *rest", "run": "self"}
    assert read.fact("vllm.Kid") == (
        "class", {"abstract": ["size"], "attributes": ["_b", "a", "kind", "size"], "methods": inherited}
    )  # fmt: skip
    assert read.fact("vllm.deep.Base")[1]["abstract"] == ["run", "size"]
    assert read.fact("vllm.deep.Record")[1]["methods"] == {"__init__": "self, one, two=, *, last"}
    assert read.fact("vllm.helper") == ("function", "x, y=")
    assert read.fact("vllm.deep.base.array") == ("value", None)
    assert "Child" in read.fact("vllm.deep")[1]["attributes"]
    assert read.fact("vllm.deep.base.nothing") is None
    assert read.fact("vllm.nowhere.Base") is None


def test_an_import_that_is_tried_may_be_missing():
    ours = uses.Uses()
    source = "try:\n    from vllm.a import B\nexcept ImportError:\n    B = None\nprint(B.C)\n"
    uses.add_module(ours, "vllm", "ours", source, {})
    contract = {"classes": {}, "functions": {}, "values": [], "missing": ["vllm.a.B"]}
    assert compare.problems(ours, contract) == []
    there = {**contract, "missing": [], "classes": {"vllm.a.B": {"abstract": [], "attributes": [], "methods": {}}}}
    assert compare.problems(ours, there) == ["ours.py:5: vllm.a.B has no C"]


def test_what_a_variable_holds_is_followed():
    ours = uses.Uses()
    source = """
import vllm.version
from vllm import platform
def f(config, other):
    first, _ = config.groups[0], 1
    for spec in first.specs:
        spec.size
    [each.id for each in config.groups if getattr(each, "spec", None).size]
    other.groups = platform.name
    rest = other.spec.deep.size
    vllm.version.text
    try:
        config.perhaps
    except AttributeError:
        pass
"""
    meanings = {"config": "vllm.C", "groups": "vllm.G", "specs": "vllm.S", "spec": "vllm.S", "spec.deep": None}
    uses.add_module(ours, "vllm", "ours", source, meanings)
    assert sorted({(read.of, read.attribute) for read in ours.reads}) == [
        ("vllm.C", "groups"),
        ("vllm.G", "id"),
        ("vllm.G", "specs"),
        ("vllm.S", "deep"),
        ("vllm.S", "size"),
        ("vllm.platform", "name"),
    ]
    assert sorted(ours.imports) == ["vllm.platform", "vllm.version.text"]


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


@pytest.mark.parametrize("version", ["0.5.15", "0.5.24", "0.6.0", "main"])
@pytest.mark.parametrize("way", [sglang_served.STORAGE, sglang_served.LINKER])
def test_a_release_of_sglang_that_we_do_not_serve_is_refused_in_one_line(version, way):
    reason = sglang_served.refusal(version, way)
    assert reason.startswith(f"SGLang {version} is not served (only 0.5.")
    assert "\n" not in reason


@pytest.mark.parametrize("version", ["0.29.1", "0.33.0", "1.0.0"])
def test_a_release_of_vllm_that_we_do_not_serve_is_refused_in_one_line(monkeypatch, version):
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

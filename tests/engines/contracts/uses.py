"""What our connectors use of an engine, found in their source with `ast`.

Imports, calls and classes of ours that the engine's are the bases of are found as they are. Which class an attribute
is read from follows from the name of the variable or attribute before the dot, which the tables here explain: a name
means one thing in all modules of a connector, or else there is an entry `module:name`. What is read through `getattr`
with a default may be missing.
"""

import ast
import dataclasses
import pathlib

from facts import own_attributes, own_methods, parameters

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "shim/python/infera_kvd"

VLLM = {
    "vllm_config": "vllm.config.VllmConfig",
    "cache_config": "vllm.config.CacheConfig",
    "compilation_config": "vllm.config.CompilationConfig",
    "kv_transfer_config": "vllm.config.KVTransferConfig",
    "transfer": "vllm.config.KVTransferConfig",
    "load_config": "vllm.config.LoadConfig",
    "model_config": "vllm.config.ModelConfig",
    "model": "vllm.config.ModelConfig",
    "parallel_config": "vllm.config.ParallelConfig",
    "parallel": "vllm.config.ParallelConfig",
    "speculative_config": "vllm.config.SpeculativeConfig",
    "speculative": "vllm.config.SpeculativeConfig",
    "kv_cache_config": "vllm.v1.kv_cache_interface.KVCacheConfig",
    "config": "vllm.v1.kv_cache_interface.KVCacheConfig",
    "group": "vllm.v1.kv_cache_interface.KVCacheGroupSpec",
    "kv_cache_groups": "vllm.v1.kv_cache_interface.KVCacheGroupSpec",
    "kv_cache_spec": "vllm.v1.kv_cache_interface.KVCacheSpec",
    "get_tp_group": "vllm.distributed.parallel_state.GroupCoordinator",
    "tensor_parallel": "vllm.distributed.parallel_state.GroupCoordinator",
    "pipeline": "vllm.distributed.parallel_state.GroupCoordinator",
    "request": "vllm.v1.request.Request",
    "output": "vllm.v1.core.sched.output.SchedulerOutput",
    "new": "vllm.v1.core.sched.output.NewRequestData",
    "going_on": "vllm.v1.core.sched.output.CachedRequestData",
    "backend": "vllm.v1.attention.backend.AttentionBackend",
    # Ours.
    "tier_rows:request": None,
}
SGLANG = {}
TABLES = {"vllm": VLLM, "sglang": SGLANG}


@dataclasses.dataclass(frozen=True)
class Read:
    """`attribute` is read from an object of the class, or from the class itself."""

    of: str
    attribute: str
    place: str


@dataclasses.dataclass(frozen=True)
class Call:
    """The class or function is called. `positional`: how many, `None` if that is not written down."""

    of: str
    positional: int | None
    names: tuple[str, ...]
    place: str


@dataclasses.dataclass(frozen=True)
class Subclass:
    """A class of ours. `methods`: name to parameter list; `wanted`: what it takes from `self` without defining it."""

    name: str
    bases: tuple[str, ...]
    methods: dict[str, str]
    attributes: frozenset[str]
    wanted: frozenset[str]
    place: str


@dataclasses.dataclass
class Uses:
    """Everything that the modules of one connector use of an engine.

    `imports`: qualified name to the place that wants it first. `optional`: those that our modules can do without.
    """

    imports: dict[str, str] = dataclasses.field(default_factory=dict)
    optional: set[str] = dataclasses.field(default_factory=set)
    reads: list[Read] = dataclasses.field(default_factory=list)
    calls: list[Call] = dataclasses.field(default_factory=list)
    subclasses: list[Subclass] = dataclasses.field(default_factory=list)

    def names(self):
        """The qualified names that a contract has to speak about."""
        return sorted({*self.imports, *(read.of for read in self.reads)})

    def shaped(self):
        """The classes of which parameters matter: those that are called or have classes of ours below them."""
        return {*(call.of for call in self.calls), *(base for ours in self.subclasses for base in ours.bases)}


def of_engine(engine):
    """What `infera_kvd.<engine>` uses."""
    uses = Uses()
    for path in sorted((SOURCE / engine).glob("*.py")):
        add_module(uses, engine, path.name, path.read_text(), TABLES[engine])
    return uses


def served(engine):
    """How versions begin that `infera_kvd.<engine>` takes, from its constant `SERVED`."""
    for path in sorted((SOURCE / engine).glob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "SERVED":
                return ast.literal_eval(statement.value)
    return ()


def add_module(uses, engine, file, source, table):
    """Adds what one module uses. `table`: name of a variable to the class of what it holds."""
    tree = ast.parse(source)
    module = file.partition(".")[0]
    imported = dict(_imports(tree, engine))
    places = {node: f"{file}:{node.lineno}" for node in ast.walk(tree) if hasattr(node, "lineno")}
    for name, node in _imports_with_nodes(tree, engine):
        uses.imports.setdefault(name, places[node])
    uses.optional |= {name for attempt in _attempts(tree) for name, _ in _imports_with_nodes(attempt, engine)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = _name_of(node.value)
            if isinstance(node.value, ast.Name) and imported.get(base) == base:
                uses.imports.setdefault(f"{base}.{node.attr}", places[node])
            elif isinstance(node.value, ast.Name) and base in imported:
                uses.reads.append(Read(imported[base], node.attr, places[node]))
            elif base:
                name = base.lstrip("_")
                of = table.get(f"{module}:{name}", table.get(name))
                if of:
                    uses.reads.append(Read(of, node.attr, places[node]))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
            uses.calls.append(_call(imported[node.func.id], node, places[node]))
        elif isinstance(node, ast.ClassDef):
            bases = tuple(imported[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in imported)
            if bases:
                uses.subclasses.append(_subclass(node, bases, places[node]))
                uses.calls += _calls_of_super(node, bases, places)


def _imports(tree, engine):
    """Local name to qualified name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == engine:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == engine:
                    yield (alias.asname, alias.name) if alias.asname else (engine, engine)


def _imports_with_nodes(tree, engine):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == engine:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node


def _attempts(tree):
    """What is tried and may fail with `ImportError`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(_name_of(handler.type) == "ImportError" for handler in node.handlers):
            yield ast.Module(node.body, [])


def _name_of(node):
    """The last name before a dot: of `a.b[0]` and `a.b()` it is `b`."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return getattr(node, "attr", getattr(node, "id", None))


def _call(of, node, place):
    is_open = any(isinstance(argument, ast.Starred) for argument in node.args) or any(k.arg is None for k in node.keywords)
    return Call(of, None if is_open else len(node.args), tuple(k.arg for k in node.keywords if k.arg), place)


def _subclass(node, bases, place):
    methods = {name: parameters(method) for name, method in own_methods(node).items()}
    attributes = own_attributes(node)
    wanted = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
    }
    return Subclass(
        node.name, bases, methods, frozenset(attributes), frozenset(wanted - methods.keys() - attributes), place
    )


def _calls_of_super(node, bases, places):
    """`super().__init__(…)` as a call of the first base."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "__init__":
            if isinstance(each.func.value, ast.Call) and _name_of(each.func.value) == "super":
                yield _call(bases[0], each, places[each])

"""What our connectors use of an engine, found in their source with `ast`.

Imports, calls and classes of ours that have the engine's as bases are found as they are. Which class an attribute is
read from follows from what a variable was assigned or goes through, and in the end from the names of parameters and
attributes, which `meanings.py` explains. What is read through `getattr` with a default, or where `AttributeError` is
caught, may be missing.
"""

import ast
import dataclasses
import fnmatch
import functools
import pathlib

from facts import own_attributes, own_methods, parameters
from meanings import COMPONENTS, MEANINGS

SOURCE = pathlib.Path(__file__).resolve().parents[3] / "shim/python/infera_kvd"


@dataclasses.dataclass(frozen=True)
class Read:
    """`attribute` is read from an object of the class, or from the class itself."""

    of: str
    attribute: str
    place: str


@dataclasses.dataclass(frozen=True)
class Call:
    """The function, or a method of the class, is called. `positional`: how many, `None` if that is not written down."""

    of: str
    positional: int | None
    names: tuple[str, ...]
    place: str
    method: str = "__init__"


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
    """Everything that some modules use of an engine.

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


@functools.cache
def of_component(component):
    """What one of `COMPONENTS` uses."""
    engine, patterns = COMPONENTS[component]
    uses = Uses()
    for path in sorted((SOURCE / engine).glob("*.py")):
        if any(fnmatch.fnmatch(path.stem, pattern) for pattern in patterns):
            add_module(uses, engine, path.stem, path.read_text(), MEANINGS[engine])
    return uses


def add_module(uses, engine, module, source, meanings):
    """Adds what one module uses. `meanings`: which class is behind the name of a parameter or an attribute."""
    tree = ast.parse(source)
    for attempt in ast.walk(tree):
        if isinstance(attempt, ast.Try) and any(_name(handler.type) == "ImportError" for handler in attempt.handlers):
            uses.optional.update(dict(_imports(ast.Module(attempt.body, []), engine)).values())
    _Reader(uses, engine, module, dict(_imports(tree, engine)), meanings).visit(tree)


def _imports(tree, engine):
    """Local name to qualified name, of what is imported by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == engine:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


class _Reader(ast.NodeVisitor):
    def __init__(self, uses, engine, module, imported, meanings):
        self._uses = uses
        self._engine = engine
        self._module = module
        self._imported = imported
        self._meanings = meanings
        self._scope = {}
        self._modules = set()

    def visit_Import(self, node):
        names = [alias.name for alias in node.names if not alias.asname]
        self._modules.update(name for name in names if name.partition(".")[0] == self._engine)

    def visit_ImportFrom(self, node):
        for alias in node.names:
            name = self._imported.get(alias.asname or alias.name)
            if name:
                self._uses.imports.setdefault(name, self._place(node))

    def visit_ClassDef(self, node):
        bases = tuple(self._imported[_name(base)] for base in node.bases if _name(base) in self._imported)
        if bases:
            self._uses.subclasses.append(_subclass(node, bases, self._place(node)))
            for each in ast.walk(node):
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and _is_super(each.func.value):
                    self._uses.calls.append(_call(bases[0], each, self._place(each), each.func.attr))
        self.generic_visit(node)

    def visit_FunctionDef(self, node):
        outer = self._scope
        # Twice, because what is assigned may come from what is assigned.
        for _ in range(2):
            self._scope = {**outer, **self._bound(node)}
        self.generic_visit(node)
        self._scope = outer

    def visit_Try(self, node):
        caught = {_name(each) for handler in node.handlers for each in getattr(handler.type, "elts", [handler.type])}
        for each in [*([] if "AttributeError" in caught else node.body), *node.handlers, *node.orelse, *node.finalbody]:
            self.visit(each)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name) and node.func.id in self._imported:
            self._uses.calls.append(_call(self._imported[node.func.id], node, self._place(node)))
        self.generic_visit(node)

    def visit_Attribute(self, node):
        module = _dotted(node.value)
        if module in self._modules:
            self._uses.imports.setdefault(f"{module}.{node.attr}", self._place(node))
            return
        of = self._class_of(node.value)
        if of:
            self._uses.reads.append(Read(of, node.attr, self._place(node)))
        self.generic_visit(node)

    def _place(self, node):
        return f"{self._module}.py:{node.lineno}"

    def _class_of(self, node):
        """The qualified name of the engine's class that an expression holds an object of, or elements of, or is."""
        if isinstance(node, ast.Subscript):
            return self._class_of(node.value)
        if isinstance(node, ast.Name):
            if node.id in self._scope:
                return self._scope[node.id]
            return self._meaning(node.id) or self._imported.get(node.id)
        if isinstance(node, ast.Attribute):
            name = node.attr.lstrip("_")
            return self._meaning(f"{(_name(node.value) or '').lstrip('_')}.{name}", name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "getattr" and isinstance(node.args[1], ast.Constant):
                return self._meaning(node.args[1].value)
            return self._meaning(node.func.id)
        if isinstance(node, ast.Call) and _dotted(node.func):
            module, _, name = _dotted(node.func).rpartition(".")
            return self._meaning(name) if module in self._imported else None
        return None

    def _meaning(self, *names):
        """What the first of `names` means that has a meaning, in this module or in all."""
        for name in names:
            for key in (f"{self._module}:{name}", name):
                if key in self._meanings:
                    return self._meanings[key]
        return None

    def _bound(self, function):
        """Variables of a function and what they hold; `None` where that is not the engine's or not known."""
        bound = {}
        for node in ast.walk(function):
            if isinstance(node, (ast.Assign, ast.NamedExpr)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                pairs = [pair for target in targets for pair in _pairs(target, node.value)]
            elif isinstance(node, (ast.For, ast.comprehension)):
                pairs = _pairs(node.target, node.iter)
            else:
                continue
            for name, value in pairs:
                of = self._class_of(value) if value is not None else None
                bound[name] = of if bound.get(name, of) == of else None
        return bound


def _pairs(target, value):
    """Names that are bound, and to which expression."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        apart = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        for index, each in enumerate(target.elts):
            yield from _pairs(each, value.elts[index] if apart else None)


def _name(node):
    return getattr(node, "attr", getattr(node, "id", None))


def _dotted(node):
    """`a.b.c` as text, `None` if it is anything else."""
    if isinstance(node, ast.Name):
        return node.id
    outer = _dotted(node.value) if isinstance(node, ast.Attribute) else None
    return f"{outer}.{node.attr}" if outer else None


def _is_super(node):
    return isinstance(node, ast.Call) and _name(node.func) == "super"


def _call(of, node, place, method="__init__"):
    is_open = any(isinstance(argument, ast.Starred) for argument in node.args) or any(k.arg is None for k in node.keywords)
    return Call(of, None if is_open else len(node.args), tuple(k.arg for k in node.keywords if k.arg), place, method)


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

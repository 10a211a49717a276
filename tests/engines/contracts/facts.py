"""What a package of an engine declares, read from its source with `ast`; nothing of it is imported or run.

A fact is a name: of a class its methods with the names of their parameters, which of them are abstract, and its
attributes; of a function its parameters. A parameter list is a text like `self, request, block_ids=, **kwargs`, where
`=` stands for any default.
"""

import ast
import functools
import pathlib

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parameters(function):
    """The parameter list of a function's definition, as text."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    with_default = len(positional) - len(spec.defaults)
    names = [arg.arg + ("=" if index >= with_default else "") for index, arg in enumerate(positional)]
    if spec.vararg or spec.kwonlyargs:
        names.append("*" + (spec.vararg.arg if spec.vararg else ""))
    names += [arg.arg + ("=" if default else "") for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        names.append("**" + spec.kwarg.arg)
    return ", ".join(names)


def decorators(definition):
    """The last parts of the names of its decorators."""
    return {_last(each.func if isinstance(each, ast.Call) else each) for each in definition.decorator_list}


def own_attributes(definition):
    """Names that a class gives its objects apart from methods: in its body, as properties, and through `self`."""
    names = set()
    for statement in definition.body:
        if isinstance(statement, FUNCTIONS):
            if decorators(statement) & {"property", "cached_property"}:
                names.add(statement.name)
            names.update(_assigned_to_self(statement))
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def own_methods(definition):
    """The definitions of its methods by name, properties left out; of overloads the last."""
    return {
        statement.name: statement
        for statement in definition.body
        if isinstance(statement, FUNCTIONS)
        and not decorators(statement) & {"property", "cached_property", "setter", "overload"}
    }


def _last(node):
    return getattr(node, "attr", getattr(node, "id", ""))


def _assigned_to_self(function):
    first = next(iter([*function.args.posonlyargs, *function.args.args]), None)
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            if first is not None and node.value.id == first.arg:
                yield node.attr


class Package:
    """The source of one engine, unpacked under `root`."""

    def __init__(self, root):
        self._root = pathlib.Path(root)

    @functools.cache  # noqa: B019 - as long-lived as the program
    def _module(self, name):
        """What a module defines or imports at its top: name to definition, or to (module, name) where it comes from."""
        base = self._root / name.replace(".", "/")
        path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if not path.is_file():
            return None
        names = {}
        for statement in _top_statements(ast.parse(path.read_text())):
            for defined, how in _defined(statement, name, is_package=base.is_dir()).items():
                # What is wrapped or completed below its definition is still that class.
                if not isinstance(names.get(defined), ast.ClassDef) or isinstance(how, ast.ClassDef):
                    names[defined] = how
        return names

    def find(self, qualified):
        """The module and the definition behind `module.name`, through re-exports; `None` if there is none."""
        module, _, name = qualified.rpartition(".")
        found = (self._module(module) or {}).get(name)
        if found is None and self._module(qualified) is not None:
            return qualified, None
        if isinstance(found, tuple):
            if found[0].partition(".")[0] != module.partition(".")[0]:
                return module, None
            return self.find(".".join(found))
        return None if found is None else (module, found)

    def fact(self, qualified):
        """The kind of a name, "class", "function" or "value", and what there is to say of it; `None` if it is not there.

        A module that is imported by name counts as a class.
        """
        found = self.find(qualified)
        if found is None:
            return None
        module, definition = found
        if definition is None:
            return "class", {"abstract": [], "attributes": sorted(self._module(module)), "methods": {}}
        if isinstance(definition, ast.ClassDef):
            return "class", self._class(module, definition)
        if isinstance(definition, FUNCTIONS):
            return "function", parameters(definition)
        return "value", None

    def fields_in(self, folder):
        """The attributes of all classes in the modules of a folder."""
        trees = [ast.parse(path.read_text()) for path in sorted((self._root / folder).glob("*.py"))]
        classes = [each for tree in trees for each in tree.body if isinstance(each, ast.ClassDef)]
        return {name for each in classes for name in own_attributes(each)}

    def _class(self, module, definition):
        methods, abstract, attributes, fields = {}, set(), set(), {}
        for part in reversed(self._ancestry(module, definition)):
            own = own_methods(part)
            methods.update({name: parameters(method) for name, method in own.items()})
            attributes |= own_attributes(part)
            abstract -= own.keys() | own_attributes(part)
            abstract |= {
                each.name for each in part.body if isinstance(each, FUNCTIONS) and "abstractmethod" in decorators(each)
            }
            if _is_record(part):
                fields.update(_fields(part))
                if "__init__" not in own:
                    methods["__init__"] = _constructor(fields)
        return {
            "abstract": sorted(abstract),
            "attributes": sorted(attributes - methods.keys()),
            "methods": dict(sorted(methods.items())),
        }

    def _ancestry(self, module, definition):
        """The class and its bases within the package, nearest first."""
        classes = [definition]
        for base in definition.bases:
            node = base.value if isinstance(base, ast.Subscript) else base
            found = self.find(f"{module}.{node.id}") if isinstance(node, ast.Name) else None
            if found and isinstance(found[1], ast.ClassDef):
                classes += [each for each in self._ancestry(*found) if each not in classes]
        return classes


def _top_statements(tree):
    """Statements that run when a module is imported, those in branches too."""
    for statement in tree.body if isinstance(tree, ast.Module) else tree:
        yield statement
        for branch in ("body", "orelse", "handlers", "finalbody"):
            inner = getattr(statement, branch, ())
            if isinstance(statement, (ast.If, ast.Try, ast.ExceptHandler, ast.With)):
                yield from _top_statements(inner)


def _defined(statement, module, *, is_package):
    if isinstance(statement, (ast.ClassDef, *FUNCTIONS)):
        return {statement.name: statement}
    if isinstance(statement, ast.ImportFrom):
        parts = module.split(".") if is_package else module.split(".")[:-1]
        parts = parts[: len(parts) - statement.level + 1] if statement.level else []
        source = ".".join([*parts, *([statement.module] if statement.module else [])])
        return {alias.asname or alias.name: (source, alias.name) for alias in statement.names}
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    return {target.id: statement for target in targets if isinstance(target, ast.Name)}


def _is_record(definition):
    return "dataclass" in decorators(definition) or "NamedTuple" in {_last(base) for base in definition.bases}


def _fields(definition):
    """The fields of a dataclass in order: name to (has a default, only by name)."""
    fields = {}
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign) or "ClassVar" in ast.unparse(statement.annotation):
            continue
        options = {}
        if isinstance(statement.value, ast.Call) and _last(statement.value.func) == "field":
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in statement.value.keywords}
        if options.get("init") == "False":
            continue
        is_plain = statement.value is not None and not options
        has_default = is_plain or bool({"default", "default_factory"} & options.keys())
        fields[statement.target.id] = has_default, options.get("kw_only") == "True"
    return fields


def _constructor(fields):
    texts = {name: name + ("=" if has_default else "") for name, (has_default, _) in fields.items()}
    by_place = [texts[name] for name, (_, only) in fields.items() if not only]
    by_name = [texts[name] for name, (_, only) in fields.items() if only]
    return ", ".join(["self", *by_place, *(["*"] if by_name else []), *by_name])

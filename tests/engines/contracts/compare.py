"""Whether a release of an engine is what our connectors take it for: their uses against the release's contract."""

from meanings import CALLED_IF_THERE


def problems(uses, contract):
    """One line for each use that the contract does not bear out."""
    absent = uses.optional & set(contract["missing"])
    found = []
    for name, place in uses.imports.items():
        if name not in _all(contract) and name not in absent:
            found.append(f"{place}: {name} {_absence(name, contract)}")
    for read in uses.reads:
        if read.of not in absent:
            found += _read(read, contract)
    for call in uses.calls:
        accepted = _parameters_of(call, contract)
        if accepted is not None:
            name = call.of if call.method == "__init__" else f"{call.of}.{call.method}"
            found += [f"{call.place}: {name}({accepted}) {why}" for why in mismatch(call, accepted)]
    for ours in uses.subclasses:
        found += _subclass(ours, contract)
    return found


def mismatch(call, accepted):
    """Why a call does not fit a parameter list (without `self`); empty if it fits or cannot be told."""
    if call.positional is None:
        return []
    listed = _split(accepted)
    positional = [name for name, kind in listed if kind == "positional"]
    kinds = {kind for _, kind in listed}
    named = {name.rstrip("=") for name, kind in listed if kind in ("positional", "named")}
    wrong = []
    if call.positional > len(positional) and "rest" not in kinds:
        wrong.append(f"takes {len(positional)} arguments by place, not {call.positional}")
    wrong += [f"has no {name}" for name in call.names if name not in named and "names" not in kinds]
    given = {name.rstrip("=") for name in positional[: call.positional]} | set(call.names)
    needed = [name for name, kind in listed if kind in ("positional", "named") and not name.endswith("=")]
    return wrong + [f"needs {name}" for name in needed if name not in given]


def override_mismatch(ours, base):
    """Why a method with the parameters `ours` cannot be called as one with the parameters `base`; empty if it can."""
    mine, theirs = _split(ours), _split(base)
    takes = {kind for _, kind in mine}
    wrong = []
    names = {name.rstrip("="): name for name, kind in mine if kind in ("positional", "named")}
    for kind in ("rest", "names"):
        if kind in {each for _, each in theirs} and kind not in takes:
            wrong.append("takes no *args" if kind == "rest" else "takes no **kwargs")
    places = [name.rstrip("=") for name, kind in mine if kind == "positional"]
    for index, (name, kind) in enumerate(each for each in theirs if each[1] in ("positional", "named")):
        bare = name.rstrip("=")
        if bare not in names:
            if "names" not in takes:
                wrong.append(f"has no {bare}")
        elif kind == "positional" and (index >= len(places) or places[index] != bare):
            wrong.append(f"has {bare} in another place")
        elif name.endswith("=") and not names[bare].endswith("="):
            wrong.append(f"has no default for {bare}")
    expected = {name.rstrip("=") for name, kind in theirs if kind in ("positional", "named")}
    wrong += [f"needs {name}" for bare, name in names.items() if bare not in expected and not name.endswith("=")]
    return wrong


def _all(contract):
    return {*contract["classes"], *contract["functions"], *contract["values"]}


def _absence(name, contract):
    return "is not there" if name in contract["missing"] else "is not in the contract: run extract.py"


def _read(read, contract):
    about = contract["classes"].get(read.of)
    if about is None:
        known = read.of in contract["functions"] or read.of in contract["values"]
        return [] if known else [f"{read.place}: {read.of} {_absence(read.of, contract)}"]
    if read.attribute in {*about["attributes"], *about.get("methods", ())} or read.attribute.startswith("__"):
        return []
    if read.attribute in about.get("absent", [read.attribute]):
        return [f"{read.place}: {read.of} has no {read.attribute}"]
    return [f"{read.place}: {read.of}.{read.attribute} is not in the contract: run extract.py"]


def _parameters_of(call, contract):
    """Without `self`; `None` if nothing is known, as of enumerations."""
    if call.of in contract["functions"]:
        return contract["functions"][call.of]
    about = contract["classes"].get(call.of)
    method = about.get("methods", {}).get(call.method) if about else None
    return None if method is None else method.partition(", ")[2]


def _subclass(ours, contract):
    bases = [contract["classes"][base] for base in ours.bases if base in contract["classes"]]
    if len(bases) < len(ours.bases):
        # An import that is missing has been said already.
        return []
    inherited = {name: parameters for base in reversed(bases) for name, parameters in base["methods"].items()}
    attributes = {name for base in bases for name in base["attributes"]}
    abstract = {name for base in bases for name in base["abstract"]} - ours.methods.keys() - ours.attributes
    found = [f"does not define {name}, which is abstract" for name in sorted(abstract)]
    if_there = {name for base in ours.bases for name in CALLED_IF_THERE.get(base, ())}
    for name, parameters in ours.methods.items():
        if name in inherited:
            wrong = override_mismatch(parameters, inherited[name])
            found += [f"{name}({parameters}) for {name}({inherited[name]}) {why}" for why in wrong]
        elif not name.startswith("_") and name not in attributes | if_there:
            found.append(f"defines {name}, which is not the engine's")
    found += [f"takes self.{name}, which nobody defines" for name in sorted(ours.wanted - inherited.keys() - attributes)]
    return [f"{ours.place}: {ours.name} {why}" for why in found]


def _split(parameters):
    """(name, kind) of each; kinds are positional, named (only by name), rest and names. `self` and `cls` are left out."""
    listed, kind = [], "positional"
    for name in filter(None, parameters.split(", ")):
        if name.startswith("**"):
            listed.append((name, "names"))
        elif name.startswith("*"):
            if name != "*":
                listed.append((name, "rest"))
            kind = "named"
        elif not (not listed and name in ("self", "cls")):
            listed.append((name, kind))
    return listed

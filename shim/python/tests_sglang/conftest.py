"""Makes the plain modules importable where neither the native module nor SGLang is."""

import pathlib
import sys
import types

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent / "infera_kvd"

# The package without its `__init__`, which wants the native module.
package = types.ModuleType("infera_kvd")
package.__path__ = [str(PACKAGE)]
sys.modules["infera_kvd"] = package

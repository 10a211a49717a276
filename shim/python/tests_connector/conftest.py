"""Makes the connector's plain modules importable where neither the native module nor vLLM is."""

import pathlib
import sys
import types

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "infera_kvd"

# The package without its `__init__`, which wants the native module.
package = types.ModuleType("infera_kvd")
package.__path__ = [str(PACKAGE)]
sys.modules["infera_kvd"] = package

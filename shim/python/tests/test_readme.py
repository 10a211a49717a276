"""The example of the package's page, run as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def example():
    """The one block of Python on the page."""
    (text,) = EXAMPLE.findall((Path(__file__).parents[1] / "README.md").read_text())
    return text


def run(socket):
    """What it prints where only the package is installed."""
    # What the test's own environment has besides must not be needed.
    bars = "import sys; sys.modules.update(numpy=None, torch=None)\n"
    environment = {"INFERA_KVD_SOCKET": str(socket), "PYTHONPATH": ":".join(sys.path)}
    line = [sys.executable, "-c", bars + example()]
    ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_the_example_of_the_page_needs_nothing_but_the_package(daemon):
    assert run(daemon.socket) == ["never_stored", "42.0"]


def test_the_example_of_the_page_says_that_there_is_no_daemon(folder):
    assert run(folder / "nothing.sock") == ["not_connected"]

"""Checks by name, and the frame of every program that makes them: options, cleaning up, the closing line."""

import argparse
import contextlib
import pathlib
import signal
import sys
import time
import traceback


class Report:
    """Checks by name, printed as they are made."""

    def __init__(self):
        self.passed, self.failed = 0, 0

    def check(self, name, found, expected=True):
        """One check."""
        good = found == expected
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}" + ("" if good else f": {found!r}, expected {expected!r}"), flush=True)


def program(about, everything):
    """Runs `everything(options, cleanup, report)` once; exit code 0 only if every check passed.

    `about`: a text whose first line says what the program is for. `cleanup`: an `ExitStack` for processes and the like.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--daemon", required=True, type=pathlib.Path, help="the binary; kvdctl is beside it")
    parser.add_argument("--model", required=True, help="the folder of the tiny model")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="an empty folder")
    parser.add_argument("--python-path", required=True, help="where the package infera_kvd is")
    options = parser.parse_args()
    # As Ctrl-C does: unwinds, so that no process is left behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    begun, report = time.monotonic(), Report()
    with contextlib.ExitStack() as cleanup:
        try:
            everything(options, cleanup, report)
        except Exception:  # noqa: BLE001 - counted and shown; the closing line must come
            traceback.print_exc()
            report.check("the run came to its end", False)
    print(f"in {time.monotonic() - begun:.0f} s, logs in {options.folder}")
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(report.failed > 0)

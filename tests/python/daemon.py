"""Starts, watches and stops the real daemon.

A daemon lives in a folder of its own. Its log is kept; a WARN or ERROR line that the test did not announce fails the
test, and so does an exit code other than 0.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from kvd_v1 import Client, Connection

START_SECONDS = 30
STOP_SECONDS = 15
# No answer takes this long: a socket that waits for more has found a hang.
ANSWER_SECONDS = 30

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TROUBLE = re.compile(r"\b(WARN|ERROR)\b")


def binary():
    """The daemon under test: INFERA_KVD_BINARY, else the development build of this checkout."""
    given = os.environ.get("INFERA_KVD_BINARY")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = pathlib.Path(given) if given else target / "debug" / "infera-kvd"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not built: run `cargo xtask py`")
    return path


class Daemon:
    """A running `infera-kvd`."""

    def __init__(self, folder, *arguments, socket_path=None, environment=None, pinned=False):
        self.folder = pathlib.Path(folder)
        self.socket = pathlib.Path(socket_path or self.folder / "kvd.sock")
        self.log_path = self.folder / "log.txt"
        self.announced = []
        self._clients = []
        pin = [] if pinned else ["--no-shared-arena-pin"]
        command = [binary(), "--socket", self.socket, *pin, *arguments]
        # Nothing of the caller's settings may leak into the daemon.
        clean = {k: v for k, v in os.environ.items() if not k.startswith("INFERA_")}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [os.fspath(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**clean, **(environment or {})},
                cwd=self.folder,
            )
        self._wait_for_socket()

    def _wait_for_socket(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"exit {self.process.returncode} at start:\n{self.log()}")
            try:
                Connection(self.socket, ANSWER_SECONDS).close()
                return
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    self.kill()
                    raise TimeoutError(f"no socket after {START_SECONDS} s:\n{self.log()}") from None
                time.sleep(0.005)

    def client(self, shared=True, **options):
        """A client, closed with the daemon. `shared`: with the arena."""
        options.setdefault("timeout", ANSWER_SECONDS)
        client = Client(self.socket, prefers_shared_arena=shared, **options)
        self._clients.append(client)
        return client

    def connection(self):
        """A bare connection that has not said anything."""
        connection = Connection(self.socket, ANSWER_SECONDS)
        self._clients.append(connection)
        return connection

    def stats(self):
        """The nine figures, asked on a connection of its own."""
        with Client(self.socket, prefers_shared_arena=False, timeout=ANSWER_SECONDS) as client:
            return client.stats()

    def admin_stats(self):
        """What the admin socket says of the whole daemon."""
        return admin_stats(self.socket)

    def log(self):
        """Everything it said so far."""
        return COLOUR.sub("", self.log_path.read_text(errors="replace"))

    def announce(self, pattern):
        """WARN and ERROR lines that match `pattern` are expected in this test."""
        self.announced.append(re.compile(pattern))

    def descriptors(self):
        """How many descriptors the process holds."""
        return len(list(pathlib.Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def is_running(self):
        """Is the process still there?"""
        return self.process.poll() is None

    def stop(self, how=signal.SIGTERM):
        """Ends it as an operator would; the exit code."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        if self.is_running():
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        """Ends it as the kernel would."""
        self.process.kill()
        self.process.wait()

    def unexpected(self):
        """The WARN and ERROR lines that nobody announced."""
        lines = [line for line in self.log().splitlines() if TROUBLE.search(line)]
        return [line for line in lines if not any(said.search(line) for said in self.announced)]


def admin_stats(path):
    """`/v1/stats` of the daemon whose engines use the socket `path`."""
    with socket.socket(socket.AF_UNIX) as admin:
        admin.settimeout(ANSWER_SECONDS)
        admin.connect(str(pathlib.Path(path).with_suffix(".admin.sock")))
        admin.sendall(b"GET /v1/stats HTTP/1.0\r\n\r\n")
        _head, _, body = b"".join(iter(lambda: admin.recv(1 << 16), b"")).partition(b"\r\n\r\n")
    return json.loads(body)


def run(*arguments, environment=None, seconds=START_SECONDS):
    """Runs the daemon's program to its end: the exit code and all that it printed."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("INFERA_")}
    done = subprocess.run(
        [os.fspath(word) for word in (binary(), *arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**clean, **(environment or {})},
        timeout=seconds,
        check=False,
    )
    return done.returncode, COLOUR.sub("", done.stdout.decode(errors="replace"))


def leave_stale_socket(path):
    """A socket file that nobody listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(os.fspath(path))


def short_folder():
    """A new folder whose path leaves room for a socket's name (108 bytes in all)."""
    base = pathlib.Path("/tmp")
    folder = base / f"kvd-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o700)
    return folder


def remove_folder(folder):
    """Removes what a daemon left."""
    shutil.rmtree(folder, ignore_errors=True)

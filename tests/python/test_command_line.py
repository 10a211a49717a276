"""The program as an operator meets it: flags, environment, socket ownership, start and end."""

import json
import os
import pathlib
import signal
import stat
import subprocess
import sys

import daemon as daemons
import pytest
from daemon import leave_stale_socket
from kvd_v1 import Client

HERE = pathlib.Path(__file__).resolve().parent


def arena_bytes(daemon):
    """The size of the arena that clients are offered."""
    return daemon.client().server["shared_arena"][0]


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        (["--max-bytes", "16M"], 16 << 20),
        (["--max-bytes=16m"], 16 << 20),
        (["--max-bytes", "16384K"], 16 << 20),
        (["--max-bytes", "16777216"], 16 << 20),
        (["--max-bytes", "1.5M"], 3 << 19),
        (["--max-bytes", "0.015625G"], 16 << 20),
        (["--max-bytes", "8M", "--shared-arena-bytes", "auto"], 8 << 20),
    ],
)
def test_sizes(start, arguments, size):
    assert arena_bytes(start(*arguments)) == size


def test_a_flag_beats_the_environment_beats_the_file(start, folder):
    config = folder / "kvd.toml"
    config.write_text('max_bytes = "4M"\n')
    environment = {"INFERA_KVD_MAX_BYTES": "8M"}
    arguments = ["--config", config]
    assert arena_bytes(start(*arguments)) == 4 << 20
    assert arena_bytes(start(*arguments, environment=environment)) == 8 << 20
    both = start(*arguments, "--max-bytes", "16M", environment=environment)
    assert arena_bytes(both) == 16 << 20


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--max-bytes", "lots"], ["--max-bytes", "lots"]),
        (["--max-bytes", "-5"], ["--max-bytes"]),
        (["--log-level", "LOUD"], ["--log-level", "LOUD"]),
        (["--max-bytes", "lots", "--log-level", "LOUD"], ["lots", "LOUD"]),
        (["--no-such-flag"], ["--no-such-flag"]),
        (["--config", "/nowhere/kvd.toml"], ["/nowhere/kvd.toml"]),
    ],
)
def test_bad_settings_are_all_named_and_nothing_starts(folder, arguments, named):
    code, output = daemons.run("--socket", folder / "s", *arguments)
    assert code == 2
    for word in named:
        assert word in output
    assert not (folder / "s").exists()


@pytest.mark.parametrize("level", ["DEBUG", "info", "Warning", "ERROR"])
def test_log_levels_of_any_case(start, level):
    daemon = start("--max-bytes", "4M", "--log-level", level)
    assert daemon.stats()["entries"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--long-path", "l3", "--long-bytes", "1G", "--use-tablespace"],
        ["--long-paths", "a,b", "--use-tablespace", "--tablespace-pools", "64K*1,1M*4"],
        ["--tablespace-slot-bytes", "64K", "--tablespace-container-bytes", "1G"],
        ["--tablespace-flush-interval-ms", "20", "--tablespace-buffered-io"],
        ["--tablespace-auto-detect-fs", "--io-mode", "direct", "--long-workers-per-shard", "4"],
        ["--shared-arena-hugetlb"],
    ],
)
def test_an_unchanged_deployment_starts(start, arguments):
    """Flags of tiers that this version does not have are accepted and said once in the log."""
    daemon = start("--max-bytes", "4M", *arguments)
    daemon.announce("tier|L3|long|tablespace|io-mode|hugetlb|huge")
    client = daemon.client()
    assert client.set(b"k", b"v", retention="long") == (True, None)
    assert client.stats()["long_bytes"] == 0


def test_pinning_is_the_default_and_may_fail(start):
    daemon = start("--max-bytes", "4M", pinned=True)
    daemon.announce("mlock|pin")
    assert daemon.client().set(b"k", b"v") == (True, None)


def test_check_config_says_what_is_wrong_and_starts_nothing(folder):
    code, output = daemons.run("check-config", "--socket", folder / "s", "--max-bytes", "16M")
    assert code == 0, output
    assert not (folder / "s").exists()
    code, output = daemons.run("check-config", "--max-bytes", "lots", "--log-level", "LOUD")
    assert code == 2
    assert "lots" in output
    assert "LOUD" in output


def test_the_socket_is_the_owners_alone_and_its_folder_is_made(start, folder):
    path = folder / "deep" / "down" / "kvd.sock"
    start("--max-bytes", "4M", socket_path=path)
    status = path.stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o700
    assert status.st_uid == os.getuid()


def test_a_stale_socket_is_replaced(start, folder):
    path = folder / "kvd.sock"
    leave_stale_socket(path)
    daemon = start("--max-bytes", "4M", socket_path=path)
    daemon.announce("stale")
    assert daemon.stats()["entries"] == 0


def test_a_socket_left_by_a_killed_daemon_is_replaced(start, folder):
    path = folder / "kvd.sock"
    first = start("--max-bytes", "4M", socket_path=path)
    first.kill()
    assert path.exists()
    second = start("--max-bytes", "4M", socket_path=path)
    second.announce("stale")
    assert second.stats()["entries"] == 0


def test_a_live_socket_is_never_stolen(start, folder):
    path = folder / "kvd.sock"
    first = start("--max-bytes", "4M", socket_path=path)
    client = first.client()
    code, output = daemons.run("--socket", path, "--max-bytes", "4M")
    assert code == 1
    assert str(path) in output
    assert str(first.process.pid) in output
    assert client.set(b"k", b"v") == (True, None)
    assert first.client().get(b"k").value == b"v"


def test_a_file_that_is_no_socket_is_left_alone(folder):
    path = folder / "kvd.sock"
    path.write_text("precious")
    code, output = daemons.run("--socket", path, "--max-bytes", "4M")
    assert code == 1
    assert str(path) in output
    assert path.read_text() == "precious"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(start, how):
    daemon = start("--max-bytes", "4M")
    idle, busy = daemon.client(), daemon.client(shared=False)
    busy.set(b"k", b"v")
    daemon.process.send_signal(how)
    assert daemon.process.wait(15) == 0
    assert not daemon.socket.exists()
    for client in (idle, busy):
        with pytest.raises(ConnectionError):
            client.stats()


def statctl(*arguments):
    """The exit code, standard output and standard error of `statctl`."""
    done = subprocess.run(
        [sys.executable, HERE / "statctl.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_statctl_prints_nine_figures_in_wire_order(daemon):
    daemon.client().set(b"k", b"v" * 10)
    code, output, _ = statctl("--socket", daemon.socket)
    assert code == 0
    figures = json.loads(output)
    assert list(figures) == list(daemon.stats())
    assert (figures["entries"], figures["host_bytes"]) == (1, 10)
    assert output.startswith('{\n  "entries": 1,\n')


def test_statctl_without_a_daemon_exits_with_one(folder):
    code, output, trouble = statctl("--socket", folder / "nobody")
    assert (code, output) == (1, "")
    assert trouble


def test_kvdctl_prints_the_same_figures(daemon):
    """`kvdctl stat --reference` takes the place of the reference's own tool."""
    with Client(daemon.socket, timeout=30) as client:
        client.set(b"k", b"v" * 10)
        client.get(b"none")
    tool = daemons.binary().with_name("kvdctl")
    done = subprocess.run(
        [tool, "--socket", daemon.socket, "stat", "--reference"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == statctl("--socket", daemon.socket)[1]

"""A file system on a device that serves one process no faster than it is told.

A loop device over an image file, and a control group that limits what its processes get from it. Needs root and control
groups, version 1 (`blkio`) or 2 (`io`).
"""

import contextlib
import os
import pathlib
import subprocess

IMAGE_BYTES = 4 << 30
GROUPS = pathlib.Path("/sys/fs/cgroup")


class SlowDisk:
    """`path`: the mounted folder. What a process wrote before it is slowed down is as it was."""

    def __init__(self, path, group, device):
        self.path = path
        self._group = group
        self._device = device

    def slow_down(self, process_id, bytes_per_second):
        """From here on the process, with all its threads, reads and writes no faster than that."""
        if (GROUPS / "blkio").is_dir():
            for way in ("read", "write"):
                limit = self._group / f"blkio.throttle.{way}_bps_device"
                limit.write_text(f"{self._device} {bytes_per_second}")
        else:
            (self._group / "io.max").write_text(f"{self._device} rbps={bytes_per_second} wbps={bytes_per_second}")
        (self._group / "cgroup.procs").write_text(str(process_id))


@contextlib.contextmanager
def slow_disk(folder):
    """A `SlowDisk` below `folder`, taken down at the end; its process must have ended then."""
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir(parents=True)
    with contextlib.ExitStack() as cleanup:
        with open(image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        cleanup.callback(image.unlink)
        device = _run("losetup", "--find", "--show", "--direct-io=on", image)
        cleanup.callback(_run, "losetup", "--detach", device)
        _run("mkfs.ext4", "-q", device)
        _run("mount", device, mounted)
        cleanup.callback(_run, "umount", "--lazy", mounted)
        name = f"infera-kvd-slow-disk-{os.getpid()}"
        number = pathlib.Path("/sys/block", pathlib.Path(device).name, "dev").read_text().strip()
        if (GROUPS / "blkio").is_dir():
            group = GROUPS / "blkio" / name
        else:
            (GROUPS / "cgroup.subtree_control").write_text("+io")
            group = GROUPS / name
        group.mkdir()
        cleanup.callback(group.rmdir)
        yield SlowDisk(mounted, group, number)


def _run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

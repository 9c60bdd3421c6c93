"""A cgroup (version 2) for each job, where this process may make some: what is in one ends at once and for certain."""

import os
import re
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

_EMPTY_S = 0.5


def own_cgroup(process: Path = Path("/proc/self")) -> Path | None:
    """Return the folder of this process's cgroup of version 2; None where there is none.

    Args:
        process: the kernel's folder of the process.
    """
    try:
        mounts = (process / "mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        groups = (process / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        if after.startswith("cgroup2 "):
            root, place = before.split()[3:5]
            path = next((line[3:] for line in groups if line.startswith("0::/")), None)
            if path is not None and (path + "/").startswith(root.rstrip("/") + "/"):
                return Path(place) / path.removeprefix(root.rstrip("/")).lstrip("/")
    return None


class JobCgroups:
    """The cgroups of the jobs of one run, below that of this process.

    Args:
        token: of the run, whose cgroups are below one of that name.

    Attributes:
        usable: whether cgroups can be made here: as root, or in a service of systemd with `Delegate=yes`.
    """

    def __init__(self, token: str) -> None:
        self._folder = _folder(token)
        self.usable = False
        if self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(mode=0o700)
                self.usable = os.access(self._folder / "cgroup.kill", os.W_OK)

    def make(self, name: str) -> Path | None:
        """Return a new cgroup for a job; None where none can be made."""
        if self._folder is None or not self.usable:
            return None
        path = self._folder / re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:100]
        with suppress(OSError):
            path.mkdir(mode=0o700)
            return path
        return None


def end_cgroup(path: Path) -> None:
    """End every process of a cgroup, and remove it."""
    until = monotonic() + _EMPTY_S
    with suppress(OSError):
        (path / "cgroup.kill").write_text("1", encoding="utf-8")
    while path.exists():
        try:
            path.rmdir()
        except OSError:
            if monotonic() > until:
                return  # `end_job_cgroups` tries again
            sleep(0.01)


def end_job_cgroups(token: str) -> None:
    """End whatever is left in the cgroups of a run, and remove them. May be repeated."""
    folder = _folder(token)
    if folder is not None and folder.is_dir():
        for path in folder.glob("*/"):
            end_cgroup(path)
        end_cgroup(folder)


def _folder(token: str) -> Path | None:
    own = own_cgroup()
    return None if own is None else own / f"heshare-{token}"

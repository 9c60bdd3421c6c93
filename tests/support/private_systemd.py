"""A systemd of its own, in namespaces, with the units of docs/systemd and stand-ins for NVML and MPS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from support import fake_mps
from support.fakenvml import build

REPOSITORY = Path(__file__).resolve().parents[2]
_PYTHON = Path(sys.executable).resolve().name
_PLACE = Path(__file__).with_name("systemd_place.sh")
_LIMITS = '["*"]\nmin_mhz = 210\nmax_mhz = 1980\ngroup = "heshare"\n'
_OUTPUT = "[Service]\nStandardOutput=append:/tmp/units.log\nStandardError=append:/tmp/units.log\n"
_HESHARE = """#!/bin/sh
export LD_LIBRARY_PATH=/opt/stand-in/lib PATH=/opt/stand-in/bin:/usr/bin:/bin PYTHONPATH=/opt/checkout:/opt/site
export FAKENVML_STATE=/dev/shm/stand-in/machine
export NUMBA_DISABLE_JIT=1
exec /opt/python/bin/{python} -m heshare "$@"
"""


class NoSystemdError(Exception):
    """No private systemd can be run here; the message says why."""


class PrivateSystemd:
    """The place, within a `with`; `root` are its files, seen from outside."""

    def __init__(self, folder: Path) -> None:
        self._mount, self._log = folder / "place", folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrivateSystemd:
        self._cgroup = _cgroup_root() / f"heshare-test-{os.getpid()}"
        self._mount.mkdir()
        self._cgroup.mkdir()
        try:
            self._open()
            self._install()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for folder, _, _ in os.walk(self._cgroup, topdown=False):
            _until(lambda folder=folder: _removed(Path(folder)), 10.0)

    def run(self, *command: str, check: bool = True) -> str:
        enter = ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--net", "--cgroup", "--root", "--wd"]
        done = subprocess.run([*enter, *command], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}\n{self.log()}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        return self.run("systemctl", "show", "--value", f"--property={name}", unit).strip()

    def log(self) -> str:
        units = self.root / "tmp/units.log"
        return "\n".join([one.read_text(errors="replace")[-3000:] for one in (self._log, units) if one.exists()])

    def wait(self, what: Callable[[], bool], seconds: float = 120.0) -> None:
        assert _until(what, seconds), self.log()

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        target.chmod(mode)

    def _open(self) -> None:
        bound = {sys.base_prefix: "/opt/python", sysconfig.get_path("purelib"): "/opt/site"}
        bound[str(REPOSITORY)] = "/opt/checkout"
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", str(_PLACE)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(self._mount), str(self._cgroup), *[f"{old}:{new}" for old, new in bound.items()]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        _until(lambda: bool(children.read_text().split()), 10.0)
        self._pid = int(children.read_text().split()[0])
        self.root = Path(f"/proc/{self._pid}/root")
        begun = _until(lambda: self.run("systemctl", "is-active", "place.target", check=False) == "active\n", 20.0)
        if not begun:
            raise NoSystemdError(f"a private systemd does not start: {self.log()}")

    def _install(self) -> None:
        """Install as the first lines of heshare-run@.service say, with stand-ins."""
        self.run("useradd", "--system", "--user-group", "--create-home", "heshare")
        for unit in (REPOSITORY / "docs/systemd").iterdir():
            shutil.copy(unit, self.root / "etc/systemd/system" / unit.name)
        self.write("etc/systemd/system/service.d/log.conf", _OUTPUT)
        self.write("etc/heshare/clocks.toml", _LIMITS)
        self.write("opt/heshare/bin/heshare", _HESHARE.format(python=_PYTHON), 0o755)
        for name in ("lib", "bin"):
            (self.root / "opt/stand-in" / name).mkdir(parents=True)
        build(self.root / "opt/stand-in/lib")
        daemon = fake_mps.install(self.root / "opt/stand-in/bin")
        daemon.write_text(daemon.read_text().replace(sys.executable, f"/opt/python/bin/{_PYTHON}"))
        machine = self.root / "dev/shm/stand-in"
        machine.mkdir()
        machine.chmod(0o777)
        (machine / "machine").touch()
        (machine / "machine").chmod(0o666)
        self.run("systemctl", "daemon-reload")
        self.run("systemctl", "start", "heshare-clocks.socket")


def _cgroup_root() -> Path:
    """Return the root of the control groups of version 2; `NoSystemdError` where the place cannot be made."""
    if os.geteuid() != 0:
        raise NoSystemdError("it takes root")
    missing = [name for name in ("unshare", "nsenter", "chroot", "useradd", "systemctl") if shutil.which(name) is None]
    if missing or not Path("/lib/systemd/systemd").exists():
        raise NoSystemdError(f"there is no {', '.join(missing) or '/lib/systemd/systemd'}")
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = [Path(words[1]) for words in mounts if words[2] == "cgroup2" and os.access(words[1], os.W_OK)]
    if not found:
        raise NoSystemdError("no control groups of version 2 can be made")
    return found[0]


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _until(what: Callable[[], bool], seconds: float) -> bool:
    until_s = time.monotonic() + seconds
    while not what():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.1)
    return True

"""Jobs have no capability and can gain none, in every set-up of docs/operations.md: by their /proc/self/status."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from heshare.ops import unprivileged_process
from heshare.ops.unprivileged_process import start_unprivileged
from heshare.shared.errors import DeviceError

SYS_ADMIN = 1 << 21
NAMES = ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs")
USER = ("--reuid=65534", "--regid=65534", "--clear-groups")
SETUPS = {
    "plain user": (*USER, "--inh-caps=-all"),
    "service with AmbientCapabilities": (*USER, "--inh-caps=+sys_admin", "--ambient-caps=+sys_admin"),
    "container with CAP_SYS_ADMIN inheritable": (
        *("--bounding-set=-all,+sys_admin", "--inh-caps=-all,+sys_admin", "--ambient-caps=+sys_admin"),
    ),
    "root": (),
}
"""What `setpriv` makes of root, for each way in which an executor is run."""

_PROGRAM = """
import json, os, sys, time
from pathlib import Path
from heshare.ops.private_files import make_private_folder
from heshare.ops.executor.job_process import CommandWorker
from heshare.ops.workers.worker_process import spawn
folder = make_private_folder(Path(sys.argv[1]) / "run")
if not os.access(sys.executable, os.X_OK):
    sys.executable = "/usr/bin/python3"  # this one may be in a folder of root
def finish(process, log):
    while process.poll() is None:
        time.sleep(0.01)
    return log.read_text()
own = Path("/proc/self/status").read_text()
command = CommandWorker("job", ["cat", "/proc/self/status"], directory=folder, environment=dict(os.environ),
                        log=folder / "command.log", iterations=1.0, grace_s=1.0, output_mib=1)
model = spawn(["sh", "-c", "cat /proc/self/status"], dict(os.environ), folder / "model.log")
print(json.dumps({"executor": own, "command": finish(command._process, command.log),
                  "worker": finish(model.process, model.log), "executor after": Path("/proc/self/status").read_text()}))
"""


def sets(status: str) -> dict[str, int]:
    """The capability sets of a process and whether it can gain any, from its /proc/self/status."""
    pairs = [line.partition(":") for line in status.splitlines()]
    return {name: int(value, 16) for name, _, value in pairs if name in (*NAMES, "CapBnd")}


@pytest.mark.parametrize("setup", SETUPS)
@pytest.mark.slow
def test_no_privileges(setup: str) -> None:
    """Jobs and workers have no capability and can gain none."""
    prefix: tuple[str, ...] = ()
    if setup != "root" and (os.geteuid() == 0 or setup != "plain user"):
        program = shutil.which("setpriv")
        if program is None or os.geteuid() != 0:
            pytest.skip("needs root and setpriv to make this set-up")
        prefix = (program, *SETUPS[setup])
    elif setup == "root" and os.geteuid() != 0:
        pytest.skip("needs root")
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's own, which other users cannot enter
        Path(folder).chmod(0o1777)
        found = subprocess.run(
            [*prefix, sys.executable, "-c", _PROGRAM, folder], capture_output=True, text=True, timeout=60, cwd="/"
        )
    if found.returncode != 0 and "No module named" in found.stderr + found.stdout:
        pytest.skip("the other user cannot read this checkout")
    assert found.returncode == 0, found.stderr
    seen = {who: sets(status) for who, status in json.loads(found.stdout).items()}
    if setup != "plain user":
        assert seen["executor"]["CapEff"] & SYS_ADMIN  # else nothing would be tested
    assert seen["executor after"] == seen["executor"]
    for who in ("command", "worker"):
        assert {name: seen[who][name] for name in NAMES} == dict.fromkeys(NAMES, 0) | {"NoNewPrivs": 1}
        if setup == "root":
            assert seen[who]["CapBnd"] == 0


def test_kept_privileges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel keeps privileges, nothing is started."""
    monkeypatch.setattr(unprivileged_process, "_privileges", lambda: {"CapEff": SYS_ADMIN})
    with pytest.raises(DeviceError, match="cannot be started without privileges"):
        start_unprivileged(["true"])


def test_missing_program() -> None:
    """A missing program is an error as of `Popen`."""
    with pytest.raises(FileNotFoundError):
        start_unprivileged(["/nonexistent/program"])

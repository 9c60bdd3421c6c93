"""Two pid namespaces, as two containers have them, with shared home and temporary folder: neither undoes the other."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest
from support.drills.machine import processes
from support.job_rows import job, jobs_of
from support.waiting import CONTAINER, can_unshare, until

from heshare.ops.state.state_file import state_folder

RUN = """
import sys
from pathlib import Path
from heshare.shared.errors import HeShareError
from heshare.ops.executor import execute
from heshare.testing.toy import ToyPredictor
file, folder, devices = sys.argv[1:]
given = {"policy": "random:all-at-once", "devices": devices, "predictor": ToyPredictor()}
try:
    done = execute.execute(Path(file), Path(folder), **given)
except HeShareError as error:
    sys.exit(str(error))
print(done.complete)
"""


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_unshare(), reason="no right to make a pid namespace"),
]


def in_container(*words, **environment):
    """Run Python in a pid namespace of its own."""
    command = [*CONTAINER, sys.executable, *words]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def second_run(doubles, devices, **environment):
    path = doubles.folder / "second.yaml"
    path.write_text(jobs_of(job("a", "sleep", "0.1")))
    return in_container("-c", RUN, str(path), str(doubles.folder / "second"), devices, **environment)


@pytest.fixture
def first(doubles):
    """A run in this container, with locked clocks; it is killed at the end."""
    child = os.fork()
    if child == 0:
        try:
            doubles.run(jobs_of(job("a", "sleep", "300", count=2)), policy="drill", clocks=True)
        finally:
            os._exit(1)
    assert until(lambda: doubles.fake.get("locked_mhz") and list((doubles.folder / "run" / "outputs").glob("*")))
    yield child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert until(lambda: doubles.traces() == [])


def state(doubles):
    """Return what the first run holds."""
    held = sorted(path.name for path in state_folder().glob("*.json"))
    return held, sorted(path.name for path in (doubles.folder / "tmp").glob("hs-mps-*")), doubles.fake.get("locked_mhz")


def test_another_container_is_refused_the_gpu_of_a_run_and_changes_nothing_of_it(doubles, first):
    before = state(doubles)
    assert [len(part) for part in before[:2]] == [2, 1]
    (doubles.folder / "own-locks").mkdir()
    for locks, message in (("locks", "another run has it"), ("own-locks", "Containers on one machine must share")):
        done = second_run(doubles, "nvml:0", HESHARE_LOCKS=str(doubles.folder / locks))
        assert done.returncode == 1
        assert f"process {first}" in done.stderr
        assert message in done.stderr
        shutil.rmtree(doubles.folder / "second")
    done = second_run(doubles, "nvml:1")
    assert (done.stdout, done.returncode) == ("True\n", 0)
    for command in ("restore", "doctor"):
        done = in_container("-m", "heshare", command)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"in use by the run in {doubles.folder / 'run'} (process {first}) of host " in done.stdout
    assert state(doubles) == before


def test_restore_in_another_container_lists_a_killed_run_and_leaves_it_to_its_own(doubles, first):
    killed = [pid for pid, part, _ in processes(doubles.folder) if part == "cleanup"]
    for number, pid in ((signal.SIGSTOP, first), (signal.SIGKILL, killed[0]), (signal.SIGKILL, first)):
        os.kill(pid, number)
    done = in_container("-m", "heshare", "restore")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Left alone: The run in" in done.stdout
    assert doubles.fake.get("locked_mhz") == 0, "a clock can be unlocked from any container of the machine"
    assert "Run `heshare restore` there" in done.stdout
    assert len(state(doubles)[0]) == 1
    done = subprocess.run([sys.executable, "-m", "heshare", "restore"], capture_output=True, text=True, check=True)
    assert "processes ended, its GPUs are free again" in done.stdout
    assert state(doubles) == ([], [], 0)

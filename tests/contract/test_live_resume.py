"""A recording with real worker processes, killed and resumed: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from support import fake_mps
from support.fakenvml import build, compiler

from heshare.profiles import store
from heshare.profiles.visit import NOTHING, Visit

BUDGET_S = 16.0

RECORD = """
import sys
from pathlib import Path
import pynvml
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.mps import MpsSession
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.profiles.visit import MeasurementProtocol
from heshare.ops.recording.profile_device import profile
from support.fakenvml import FakeNvml

library, folder, budget_s = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
FakeNvml(library, pynvml).reset()
mps = MpsSession("GPU-00000000-1111-2222-3333-444444444444")
spin = (sys.executable, "-m", "support.spin_worker", "--ms", "5")
launcher = ProcessLauncher(mps, command=spin, period_s=0.02, warmup=1, warmup_s=0.0, log_dir=folder, keep=8)
protocol = MeasurementProtocol(repeats=1, window_s=0.15, warmup_s=0.02, readings=1)
with NvmlDevice(0, launcher, mps=mps) as device:
    profile(device, folder / "out", budget_s=budget_s, clocks=False, protocol=protocol, progress=False)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    return build(tmp_path_factory.mktemp("fakenvml"))


def _start(library: Path, folder: Path, mark: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "HESHARE_MARK": mark,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    return subprocess.Popen([sys.executable, "-c", RECORD, str(library), str(folder), str(BUDGET_S)], env=environment)


def _killed_at(process: subprocess.Popen[bytes], journal: Path, lines: int) -> bool:
    """Kill a recording when its journal has so many lines; return False if it ended before."""
    while process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") >= lines:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    return process.wait() == -signal.SIGKILL


def _marked(mark: str) -> list[int]:
    """Return the ids of processes that this recording started."""
    ids = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HESHARE_MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                ids.append(int(process.name))
        except OSError:
            continue
    return ids


def _entries(content: bytes) -> list[dict[str, object]]:
    return [json.loads(line.rpartition(b"\t")[0]) for line in content.splitlines()]


@pytest.mark.nightly
def test_killed_recording(library: Path, tmp_path: Path) -> None:
    """A recording that is killed loses and repeats nothing."""
    (tmp_path / "bin").mkdir()
    fake_mps.install(tmp_path / "bin")
    folder, mark = tmp_path / "out" / "H100", uuid.uuid4().hex
    journal, kept = folder / "recording.jsonl", b""
    for lines in (6, 22):
        assert _killed_at(_start(library, tmp_path, mark), journal, lines)
        now = journal.read_bytes()
        now = now[: now.rfind(b"\n") + 1]
        assert now.startswith(kept)
        kept = now
        assert not (folder / "profile.csv").exists()
    assert _start(library, tmp_path, mark).wait() == 0
    content = journal.read_bytes()
    assert content.startswith(kept)

    entries = _entries(content)
    visits = [Visit.from_dict(entry["visit"]) for entry in entries if "visit" in entry]  # type: ignore[arg-type]
    assert len({(visit.setup, visit.number) for visit in visits}) == len(visits) > 15
    took_s = [float(entry["took_s"]) for entry in entries if "took_s" in entry]  # type: ignore[arg-type]
    assert sum(took_s) + sum(visit.took_s for visit in visits[:-1]) < BUDGET_S

    table = store.read(folder / "profile.csv")
    shared = [visit.setup for visit in visits if not visit.setup.startswith(NOTHING)]
    tasks = {(setup, task) for setup in shared for task in setup.split("/")[0].split("+")}
    assert len(table) == len(tasks)
    limit_s = time.monotonic() + 60
    while _marked(mark):
        assert time.monotonic() < limit_s, "processes are left"
        time.sleep(0.05)

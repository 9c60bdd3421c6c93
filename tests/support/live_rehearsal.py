"""`heshare live` rehearsed without a GPU: `PYTHONPATH=tests python -m support.live_rehearsal --out build/live`.

Everything is real (processes, journal, locks, cleanup process, wall time) but the NVML library, the MPS daemon and the
work of the workers: those are the stand-ins of the tests. The device model emulates the GPU (`support.emulated_gpu`),
so the result that the simulator should return is known. Its results are marked as a stand-in's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from support import kill_drill
from support.emulated_gpu import emulated_gpu
from support.fakenvml import SONAME, FakeNvml

from heshare.cli.live_command import write_and_print
from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.host import Host
from heshare.ops.live.live_comparison import POLICIES, LiveComparisonConfig, LiveOptions, run_live_comparison
from heshare.ops.live.live_gpus import LiveGpu
from heshare.ops.mps import MpsSession
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.open_device import SPARES
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.profiles.visit import MeasurementProtocol

GPU = "H100"
"""The GPU that the stand-in for the NVML library reports."""
_KEEP = 10


@contextmanager
def stand_in_gpu(
    folder: Path, *, load_s: float, warmup_s: float, look_s: float, period_s: float = 0.1
) -> Iterator[LiveOptions]:
    """Set up an emulated stand-in H100 on this machine; yield the options of a live comparison on it.

    Args:
        folder: for the stand-ins; the environment of this process points there afterwards.
        load_s: seconds that a worker loads.
        warmup_s: seconds that it warms up.
        look_s: seconds between two checks of the GPU while jobs run.
        period_s: seconds between two reports of a worker.
    """
    os.environ.update(kill_drill.prepare(folder))
    tempfile.tempdir = None
    library = folder / "lib" / SONAME
    fake = FakeNvml(library, import_module("pynvml"))
    fake.reset()
    launch = partial(
        ProcessLauncher,
        command=(sys.executable, "-m", "support.emulated_worker", "--load-s", str(load_s)),
        warmup_s=warmup_s,
        period_s=period_s,
    )
    try:
        with emulated_gpu(GPU, library, folder / "workers"):
            yield LiveOptions(
                execute=execute.ExecutorOptions(timeouts=Timeouts(poll_s=look_s), host=_EmulatedHost(launch)),
                opener=lambda live: _open(live, launch, folder),
                warm_s=warmup_s,
            )
    finally:
        fake.close()


class _EmulatedHost(Host):
    """This machine, whose workers the device model emulates."""

    def __init__(self, launch: partial[ProcessLauncher]) -> None:
        self._launch = launch

    def models_lack(self) -> str:
        return ""

    def models(self, mps: MpsSession, outputs: Path) -> ProcessLauncher:
        return self._launch(mps, log_dir=outputs)


def _open(live: LiveGpu, launch: partial[ProcessLauncher], folder: Path) -> NvmlDevice:
    mps = MpsSession(live.uuid)
    launcher = launch(mps, log_dir=folder / "logs", spares=SPARES, keep=_KEEP)
    return NvmlDevice(live.uuid, launcher, mps=mps, allow_clocks=live.clocks)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="support.live_rehearsal", description="heshare live without a GPU.")
    parser.add_argument("--out", type=Path, default=Path("build/live"))
    parser.add_argument("--work", type=Path, default=Path("build/rehearsal"))
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--budget-s", type=float, default=300.0)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", action="append")
    given = parser.parse_args(arguments)
    work = given.work.absolute()
    config = LiveComparisonConfig(
        policies=tuple(given.policy or POLICIES),
        tasks=given.tasks,
        minutes=given.minutes,
        budget_s=given.budget_s,
        seed=given.seed,
        allow_clocks=True,
    )
    with (
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder,
        stand_in_gpu(Path(folder), load_s=0.3, warmup_s=0.5, look_s=0.25) as options,
    ):
        protocol = MeasurementProtocol(repeats=1, window_s=given.window_s, warmup_s=0.2, readings=3)
        options = replace(options, protocol=protocol, report=lambda text: sys.stderr.write(f"{text} ...\n"))
        comparison = run_live_comparison(config, work, options)
        write_and_print(
            comparison, work, given.out, False, command="python -m support.live_rehearsal " + " ".join(arguments)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

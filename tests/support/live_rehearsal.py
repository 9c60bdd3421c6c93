"""`heshare live` rehearsed without a GPU: `PYTHONPATH=tests python -m support.live_rehearsal --cluster 2xH100`.

Everything is real (processes, journal, locks, cleanup process, wall time) but the NVML library, the MPS daemon and the
work of the workers: those are the stand-ins of the tests. The device model emulates the GPUs (`support.emulated_gpu`),
so the result that the simulator should return is known. Every row of its records is marked as emulated.
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
from support.emulated_gpu import emulated_gpus
from support.fakenvml import SONAME, FakeNvml

from heshare.cli.live_command import compare, draw, write_and_print
from heshare.cli.options import parse_duration_s
from heshare.devices.device import Reading
from heshare.devices.device_model import co_run
from heshare.ops.executor import execute
from heshare.ops.executor.executor_device import Timeouts
from heshare.ops.executor.host import Host
from heshare.ops.live.live_comparison import POLICIES, LiveComparisonConfig, LiveOptions
from heshare.ops.live.live_gpus import LiveGpu
from heshare.ops.mps import MpsSession
from heshare.ops.nvml_device import NvmlDevice
from heshare.ops.open_device import SPARES
from heshare.ops.workers.worker_pool import ProcessLauncher
from heshare.profiles.schema import UTILISATIONS
from heshare.profiles.visit import MeasurementProtocol
from heshare.world.cluster import Cluster

_KEEP = 10


@contextmanager
def stand_in_gpus(
    folder: Path, cluster: str, *, load_s: float, warmup_s: float, look_s: float, period_s: float = 0.1
) -> Iterator[tuple[LiveOptions, FakeNvml]]:
    """Set up emulated stand-in GPUs on this machine while a `with` lasts.

    It yields the options of a live comparison on them, and the stand-in for the NVML library.

    Args:
        folder: for the stand-ins, in which there is nothing yet; the environment of this process points there.
        cluster: the GPUs, such as `2xH100,A100`.
        load_s: seconds that a worker loads.
        warmup_s: seconds that it warms up.
        look_s: seconds between two checks of the GPUs while jobs run.
        period_s: seconds between two reports of a worker.
    """
    before = dict(os.environ)
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
    gpus = [gpu.name for gpu in Cluster.parse(cluster).gpus]
    try:
        with emulated_gpus(gpus, library, folder / "workers"):
            options = LiveOptions(
                execute=execute.ExecutorOptions(timeouts=Timeouts(poll_s=look_s), host=_EmulatedHost(launch)),
                opener=lambda live: _open(live, launch, folder),
                warm_s=warmup_s,
            )
            yield options, fake
    finally:
        fake.close()
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir = None


class _EmulatedHost(Host):
    """This machine, whose workers the device model emulates."""

    def __init__(self, launch: partial[ProcessLauncher]) -> None:
        self._launch = launch

    def models_lack(self) -> str:
        return ""

    def models(self, mps: MpsSession, outputs: Path) -> ProcessLauncher:
        return self._launch(mps, log_dir=outputs)


class _EmulatedDevice(NvmlDevice):
    """A stand-in GPU, whose rows are emulated and whose utilisations, which NVML lacks, are the device model's."""

    provenance = "emulated"

    def read(self) -> Reading:
        reading = super().read()
        residents = tuple(progress.resident for progress in reading.residents.values())
        tasks = co_run(self.gpu, residents, reading.requested_mhz).tasks
        found = {name: min(100.0, sum(getattr(task, name) for task in tasks)) for name in UTILISATIONS}
        return replace(reading, **found)


def _open(live: LiveGpu, launch: partial[ProcessLauncher], folder: Path) -> NvmlDevice:
    mps = MpsSession(live.uuid)
    launcher = launch(mps, log_dir=folder / "logs", spares=SPARES, keep=_KEEP)
    return _EmulatedDevice(live.uuid, launcher, mps=mps, allow_clocks=live.clocks)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="support.live_rehearsal", description="heshare live without a GPU.")
    parser.add_argument("--cluster", default="H100", help="the stand-ins, such as 2xH100,A100")
    parser.add_argument("--time", default="10m")
    parser.add_argument("--out", type=Path, default=Path("build/rehearsal"))
    parser.add_argument("--work", type=Path, default=Path("build/rehearsal/work"))
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--allow-clocks", action="store_true")
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", action="append")
    given = parser.parse_args(arguments)
    config = LiveComparisonConfig(
        policies=tuple(given.policy or POLICIES),
        tasks=given.tasks,
        minutes=given.minutes,
        budget_s=parse_duration_s(given.budget),
        seed=given.seed,
        allow_clocks=given.allow_clocks,
    )
    with (
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder,
        stand_in_gpus(Path(folder), given.cluster, load_s=0.3, warmup_s=0.5, look_s=0.25) as (options, _),
    ):
        protocol = MeasurementProtocol(repeats=1, window_s=given.window_s, warmup_s=0.2, readings=3)
        options = replace(
            options,
            protocol=protocol,
            time_s=parse_duration_s(given.time, "time"),
            report=lambda text: sys.stderr.write(f"{text} ...\n"),
        )
        comparison = compare(config, given.work.absolute(), options)
    command = "python -m support.live_rehearsal " + " ".join(arguments)
    written = write_and_print(comparison, given.out, False, command=command)
    if given.figures:
        draw(written, given.figures.absolute(), False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

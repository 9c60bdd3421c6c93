"""`heshare live` rehearsed without a GPU: `python -m heshare.testing.rehearsal --out data/live`.

Everything is real (processes, journal, locks, watchdog, wall time) but for the NVML library, the MPS daemon and what
the workers do: those are the stand-ins of the tests, and the GPU is played by the device model
(`heshare.testing.player`), so that what the simulator should say is known. Its results are marked as a stand-in's.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path

from heshare.devices.live import NvmlDevice
from heshare.devices.meter import Patience
from heshare.devices.mps import MpsSession
from heshare.devices.open import SPARES
from heshare.devices.workers import ProcessLauncher
from heshare.profiles.protocol import Protocol
from heshare.running import execute
from heshare.running.live import trial
from heshare.running.live.cards import LiveCard
from heshare.testing import drill
from heshare.testing.fakenvml import SONAME, FakeNvml
from heshare.testing.player import playing

GPU = "H100"
"""What the stand-in for the NVML library is at first."""
_KEEP = 10


@contextmanager
def stage(
    folder: Path, *, load_s: float, warmup_s: float, look_s: float, period_s: float = 0.1
) -> Iterator[trial.Ways]:
    """A played H100 on this machine while a `with` lasts; what a trial then needs to run on it.

    Args:
        folder: for the stand-ins; the environment of this process points there afterwards.
        load_s: seconds that a worker loads.
        warmup_s: seconds that it warms up.
        look_s: seconds from look to look while jobs run.
        period_s: seconds from report to report of a worker.
    """
    os.environ.update(drill.prepare(folder))
    tempfile.tempdir = None
    library = folder / "lib" / SONAME
    fake = FakeNvml(library, import_module("pynvml"))
    fake.reset()
    launch = partial(
        ProcessLauncher,
        command=(sys.executable, "-m", "heshare.testing.played", "--load-s", str(load_s)),
        warmup_s=warmup_s,
        period_s=period_s,
    )
    try:
        with playing(GPU, library, folder / "played"):
            yield trial.Ways(
                execute=execute.Ways(
                    patience=Patience(look_s=look_s), models=lambda mps, logs: launch(mps, log_dir=logs)
                ),
                opener=lambda card: _open(card, launch, folder),
                warm_s=warmup_s,
            )
    finally:
        fake.close()


def _open(card: LiveCard, launch: partial[ProcessLauncher], folder: Path) -> NvmlDevice:
    mps = MpsSession(card.uuid)
    launcher = launch(mps, log_dir=folder / "logs", spares=SPARES, keep=_KEEP)
    return NvmlDevice(card.uuid, launcher, mps=mps, allow_clocks=card.clocks)


def main(arguments: Sequence[str]) -> int:
    """Rehearse, write the results, print them."""
    from dataclasses import replace

    from heshare.cli.live import tell

    parser = argparse.ArgumentParser(prog="heshare.testing.rehearsal", description="heshare live without a GPU.")
    parser.add_argument("--out", type=Path, default=Path("data/live"))
    parser.add_argument("--work", type=Path, default=Path("build/rehearsal"))
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--budget-s", type=float, default=300.0)
    parser.add_argument("--window-s", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", action="append")
    asked = parser.parse_args(arguments)
    work = asked.work.absolute()
    wanted = trial.Asked(
        policies=tuple(asked.policy or trial.POLICIES),
        tasks=asked.tasks,
        minutes=asked.minutes,
        budget_s=asked.budget_s,
        seed=asked.seed,
        allow_clocks=True,
    )
    with (
        tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder,
        stage(Path(folder), load_s=0.3, warmup_s=0.5, look_s=0.25) as ways,
    ):
        protocol = Protocol(repeats=1, window_s=asked.window_s, warmup_s=0.2, readings=3)
        said = replace(ways, protocol=protocol, say=lambda text: sys.stderr.write(f"{text} ...\n"))
        done = trial.conduct(wanted, work, said)
        tell(done, work, asked.out, False, command="python -m heshare.testing.rehearsal " + " ".join(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What drills and other tests run on: stand-ins for NVML and the MPS daemon, and a policy that changes clocks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from support import fake_mps
from support.fakenvml import build, uuid_of

from heshare.policies.policy import Action, Event, SetClock, Traits, View
from heshare.policies.random_placement import Random

UUID = uuid_of(0)
POLICY = "drill"
MARK = "HESHARE_DRILL"


class Drilled(Random):
    """Random, all at once, with a lower clock at every decision, so that there is a clock to restore."""

    name = POLICY

    def __init__(self) -> None:
        super().__init__(all_at_once=True)
        self.traits = Traits(frequency=True, multi_task=True, heterogeneous=False)

    def decide(self, event: Event, view: View) -> Iterator[Action]:
        answer: Iterable[Action] = super().decide(event, view)
        yield from answer
        for gpu in view.gpus:
            grid = gpu.gpu.clocks_mhz
            if len(grid) > 1:
                yield SetClock(gpu.index, grid[int(self.rng.integers(len(grid) - 1))])


def prepare(folder: Path) -> dict[str, str]:
    """Build the stand-ins into a folder; return the environment in which a process uses them instead of real GPUs."""
    for name in ("lib", "bin", "locks", "state", "tmp"):
        (folder / name).mkdir()
    build(folder / "lib")
    fake_mps.install(folder / "bin")
    return {
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "FAKENVML_STATE": str(folder / "machine"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HESHARE_LOCKS": str(folder / "locks"),
        "TMPDIR": str(folder / "tmp"),
        MARK: str(folder),
    }

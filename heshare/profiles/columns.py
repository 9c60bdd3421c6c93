"""The columns of a profile: names, kinds, units and meanings; and how co-runners are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from heshare.errors import InputError
from heshare.world.catalogue import resident
from heshare.world.workload import Resident

PROVENANCES = ("emulated", "measured", "published")
"""Where a row comes from: an emulated device, a real one, or somebody's publication."""


class Column(NamedTuple):
    """One column: its name, the kind of its cells, its unit and what it means."""

    name: str
    kind: type
    unit: str
    meaning: str


COLUMNS = (
    Column("gpu", str, "", "a name of data/gpus.csv"),
    Column("provenance", str, "", "emulated, measured or published"),
    Column("workload", str, "", "the observed task's model, a name of data/workloads.csv"),
    Column("batch_size", int, "samples", "its inference batch size"),
    Column("precision", str, "", "fp32, tf32 or fp16, of the task and of its co-runners"),
    Column("engine", str, "", "eager or tensorrt, of the task and of its co-runners"),
    Column("mps_pct", int, "%", "its MPS percentage"),
    Column("sm_mhz", int, "MHz", "the SM clock requested"),
    Column("sm_mhz_reached", float, "MHz", "the SM clock reached, mean over the repeats"),
    Column("co_runners", str, "", "the tasks beside it, such as vgg19:8@50+bert_large:4@20, sorted; empty when alone"),
    Column("time_s", float, "s", "time of one iteration of the observed task, mean over the repeats"),
    Column("time_std_s", float, "s", "its sample standard deviation over the repeats (0 for one repeat)"),
    Column("power_w", float, "W", "power of the whole board meanwhile, co-runners included, mean over the repeats"),
    Column("power_std_w", float, "W", "its sample standard deviation over the repeats (0 for one repeat)"),
    Column("energy_j", float, "J", "energy of the whole board during one iteration of the observed task"),
    Column("sm_util_pct", float, "%", "SM utilisation of the whole GPU; in a row alone, the task's own"),
    Column("dram_util_pct", float, "%", "memory bandwidth utilisation of the whole GPU; alone, the task's own"),
    Column("l2_util_pct", float, "%", "L2 cache utilisation of the whole GPU; alone, the task's own"),
    Column("idle_w", float, "W", "power of the board with nothing running (Table II's basic power)"),
    Column("repeats", int, "", "visits, one window each"),
    Column("throttled", bool, "", "whether a limit held the clock below the request in any window"),
)
NAMES = tuple(column.name for column in COLUMNS)


def write_co_runners(residents: Iterable[Resident]) -> str:
    """Co-runners as text, sorted: `bert_large:4@20+vgg19:8@50`."""
    return "+".join(sorted(str(one) for one in residents))


def parse_co_runners(text: str, *, precision: str = "fp32", engine: str = "eager") -> tuple[Resident, ...]:
    """Read co-runners; the empty text is none.

    Raises:
        InputError: another form, an unknown workload, or co-runners out of order (one set has one spelling).
    """
    if not text:
        return ()
    found = tuple(resident(part, precision=precision, engine=engine) for part in text.split("+"))
    if write_co_runners(found) != text:
        raise InputError(
            column="co_runners",
            found=repr(text),
            expected=repr(write_co_runners(found)),
            action="Write the co-runners in full and sorted.",
        )
    return found

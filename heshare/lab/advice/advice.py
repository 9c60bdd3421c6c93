"""`heshare.advise`: whether to share a card among workloads, with which shares, and which changes reverse that."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from heshare.device_query import least_memory_mib
from heshare.devices.constants import Constants, default
from heshare.devices.timing_effects import Key, Timing
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.advice.exports import export
from heshare.lab.advice.measured import Measured, busy_parts, place
from heshare.lab.advice.options import ALONE, MIG, MPS, TITLES, Option, best_clock, option, ways
from heshare.lab.systems.shared.mps_or_time_slices import limit_note
from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.shared.errors import InputError, require
from heshare.shared.inputs.bounds import MOST_BATCH
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import DEFAULT_PRECISION, MEASURED, Resident, Workload

MOST = 7
"""Most workloads of an advice: a card has at most as many MIG instances."""
SMALL = 0.03
"""A way that is better than a simpler one by less is not recommended: the model cannot tell so little."""
BATCH_FACTORS = (0.5, 2.0, 0.25, 4.0, 0.125, 8.0)
HOST_FACTORS = (0.5, 2.0, 0.25, 4.0, 0.125, 8.0, 0.0625, 16.0)
"""Changes of all inference batch sizes, and of the hosts' time, that are tried, the nearest first."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The ways to run workloads on a card, and the recommended one.

    Attributes:
        gpu: the card.
        workloads: the workloads, with copies repeated.
        needs_mib: the device memory that each needs at least, MiB.
        options: each way at the default clock and at the clock with the least energy.
        best: the option that is recommended, with the highest work over energy and time.
        recommendation, changes: a sentence each; the latter has the nearest changes that make another way the best.
        notes: limits of the model for these workloads, and ways that are missing.
    """

    gpu: Gpu
    workloads: tuple[Workload, ...]
    needs_mib: tuple[float, ...]
    options: tuple[Option, ...]
    best: Option
    recommendation: str
    changes: str
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the workloads as they are written."""
        return tuple(one.model if one.phase == MEASURED else str(one) for one in self.workloads)

    def to_frame(self) -> pd.DataFrame:
        """Return one row an option and workload, with ends of intervals; seconds and joules are of an iteration."""
        rows = []
        for each in self.options:
            for at, name in enumerate(self.names):
                row: dict[str, object] = {"option": each.way.name, "workload": name, "share": each.way.shares[at]}
                row |= {"sm_mhz": each.sm_mhz, "power_w": each.power_w, "per_s": each.per_s[at]}
                ranges = {"speed": each.speed, "energy": each.energy, "time_s": each.time_s[at]}
                for key, found in (ranges | {"energy_j": each.energy_j[at]}).items():
                    row |= {key: found.value, f"{key}_low": found.low, f"{key}_high": found.high}
                rows.append(row | {"best": each is self.best})
        return pd.DataFrame(rows).astype({"sm_mhz": "Int64"})

    def export(self, target: str) -> str:
        """Return the recommended option as `mps` (shell commands), `slurm`, `hami` or `dra` (Kubernetes YAML)."""
        return export(target, self.gpu, self.best, self.names, self.needs_mib)

    def __str__(self) -> str:
        return "\n".join([self.recommendation, self.changes, *self.notes])


def advise(
    gpu: str,
    workloads: Sequence[str | Measured] | str | Measured,
    *,
    precision: str = DEFAULT_PRECISION,
    engine: str = "eager",
) -> Advice:
    """Return the ways to run workloads on a card, with speed, latency, joules and intervals, and the recommended one.

    Args:
        gpu: a GPU of the catalogue, such as `A100`.
        workloads: up to 7, such as `resnet50:8`, `3xresnet50:8` (copies), `eaco_vgg16-train:32`, or a measurement of
            one alone on this card: a `Measured`, or `asr=per_s:104,w:155,sm:6`. One alone means two copies of it.
        precision: of workloads of the catalogue, one of `heshare.world.workload.PRECISIONS`.
        engine: of workloads of the catalogue, `eager` or `tensorrt`.

    Raises:
        InputError: an unknown GPU or workload, too many of them, or one that the card's memory does not hold.

    Example:
        >>> import heshare as hs
        >>> advice = hs.advise("A100", "resnet50:1")
        >>> print(advice.best, "does", advice.best.speed, "times the work")
        MPS at 100, 100 %, 435 MHz does 1.98 [0.961, 2] times the work
    """
    found, measured = _parsed(workloads, precision, engine)
    case = _Case(catalogue.gpu(gpu), found, measured)
    for one, needed_mib in zip(found, case.needs_mib, strict=True):
        if needed_mib > case.gpu.memory_mib:
            expected = f"at most the {case.gpu.memory_mib:.0f} MiB of {case.gpu.name}"
            raise InputError(f"{one}, which needs {needed_mib:.0f} MiB or more", expected, "Choose a larger GPU.")
    options = case.options([case.constants(end=end) for end in (0, -1, 1)])
    best, rates = _best(options), {each.way.name: each.per_s for each in reversed(options) if each.sm_mhz is None}
    notes = [f"Without sharing: together they need {sum(case.needs_mib):.0f} MiB or more of {case.gpu.memory_mib:.0f}."]
    if MPS in rates:
        ratios = [fast / slow for fast, slow in zip(rates[MPS], rates[TIME_SLICE], strict=True)]
        note = limit_note(case.gpu.name, [Resident(one) for one in found], ratios=ratios)
        notes = [note[:1].upper() + note[1:]]
    if best.way.name == MIG:
        notes.append("No power was measured in MIG instances: the extra power of co-runners is not modelled.")
    sentences = _recommendation(options, best), _changes(case, best)
    return Advice(case.gpu, found, case.needs_mib, tuple(options), best, *sentences, tuple(filter(None, notes)))


@dataclass(frozen=True, slots=True)
class _Case:
    gpu: Gpu
    workloads: tuple[Workload, ...]
    measured: Mapping[Workload, Measured]

    @property
    def needs_mib(self) -> tuple[float, ...]:
        known = {workload: one.memory_mib for workload, one in self.measured.items()}
        return tuple(known[one] if one in known else least_memory_mib(one) for one in self.workloads)

    def constants(self, end: int = 0, host: float = 1.0) -> Constants:
        """Return constants with the hosts' time times `host`, at the lower (-1) or upper (1) end of unknown inputs."""
        measured = self.measured.values()
        constants = place(default(), self.gpu, [(one, busy_parts(one, default())[end]) for one in measured])
        far = host * math.exp(end * NORMAL_90 * constants.spreads.of("host").total)
        factors = {(self.gpu.name, one.engine, one.model): far for one in self.workloads}
        factors |= {(self.gpu.name, MEASURED, one.name): host for one in measured}

        def slower(key: Key, timing: Timing) -> Timing:
            return replace(timing, host_s=factors.get(key[:3], 1.0) * timing.host_s)

        return replace(constants, timing=constants.timing.with_change(slower))

    def options(self, variants: Sequence[Constants]) -> list[Option]:
        found = ways(self.gpu, self.workloads, self.needs_mib, variants[0])
        clocks = [(way, mhz) for way in found for mhz in (None, best_clock(self.gpu, way, variants[0]))]
        return [option(self.gpu, way, mhz, variants) for way, mhz in clocks]


def _parsed(workloads: object, precision: str, engine: str) -> tuple[tuple[Workload, ...], dict[Workload, Measured]]:
    listed = [workloads] if isinstance(workloads, str | Measured) else workloads
    good = isinstance(listed, Sequence) and len(listed) > 0 and all(isinstance(one, str | Measured) for one in listed)
    require("workloads", repr(workloads), good, "workloads such as ['resnet50:8']", "Correct them.")
    found: list[Workload] = []
    measured: dict[Workload, Measured] = {}
    for each in listed if isinstance(listed, Sequence) else ():
        copies, text = re.findall(r"(?s)^(?:([1-9])x)?(.*)$", each.strip())[0] if isinstance(each, str) else ("", "=")
        require("workloads", repr(text), "@" not in text, "workloads without shares", "Leave out @ and the share.")
        if "=" in text:
            one = each if isinstance(each, Measured) else Measured.parse(text)
            known = measured.setdefault(one.workload, one)
            require("workloads", one.name, known == one, "each name once", "Rename one.")
            found += [one.workload] * int(copies or 1)
        else:
            found += [catalogue.resident(text, precision=precision, engine=engine).workload] * int(copies or 1)
    require("workloads", f"{len(found)} workloads", len(found) <= MOST, f"at most {MOST}", "Leave some out.")
    return tuple(found * 2 if len(found) == 1 else found), measured


def _best(options: Sequence[Option]) -> Option:
    best = options[0]
    for each in options:
        more = 1.0 if each.way.name == best.way.name else 1.0 + SMALL
        best = each if each.score > more * best.score else best
    return best


def _recommendation(options: Sequence[Option], best: Option) -> str:
    pays, text = best.way.name != ALONE, "Sharing does not pay"
    if pays:
        own = next(each for each in options if each.way == best.way)  # at the default clock
        uncertain = f"Sharing may pay (at the default clock {own.speed}: measure it)"
        text = "Sharing pays" if own.speed.low > 1.0 else uncertain
    text += f": {best} does {best.speed} times the work a second with {best.energy} of the energy"
    others = [each for each in options if (each.way.name == ALONE) is pays]
    other = max(others, key=lambda each: each.score, default=None)
    return text + ("." if other is None else f"; {other} does {other.speed} with {other.energy}.")


def _changes(case: _Case, best: Option) -> str:
    """Return the nearest change of the inference batch sizes, and of the hosts' time, that makes another way the best.

    A change between sharing and not sharing has precedence over a nearer one that only changes how to share.
    """
    found, batches = [], []
    for factor in BATCH_FACTORS if all(one.phase == "inference" for one in case.workloads) else ():
        sizes = [min(MOST_BATCH, max(1, round(factor * one.batch_size))) for one in case.workloads]
        workloads = [replace(one, batch_size=size) for one, size in zip(case.workloads, sizes, strict=True)]
        batches.append((replace(case, workloads=tuple(workloads)), 1.0))
    batches = [each for each in batches if max(each[0].needs_mib) <= case.gpu.memory_mib]
    for inputs in (batches, [(case, factor) for factor in HOST_FACTORS]):
        nearest = ""
        for changed, host in inputs:
            name = _best(changed.options([changed.constants(host=host)])).way.name
            decides = (name == ALONE) is not (best.way.name == ALONE)
            if decides or (name != best.way.name and not nearest):
                nearest = f"a host {max(host, 1 / host):g} times as {'slow' if host > 1 else 'fast'}"
                if changed is not case:
                    nearest = "inference batch sizes of " + ", ".join(str(one.batch_size) for one in changed.workloads)
                nearest += f" ({TITLES[name]})"
            if decides:
                break
        found += [nearest] * bool(nearest)
    return f"It would change with {', or with '.join(found) or 'no batch size and no host that was tried'}."

"""`heshare.advise`: a workload alone at its best, and whether sharing the card pays beyond that."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from heshare.device_query import least_memory_mib
from heshare.devices.constants import Constants, default
from heshare.devices.timing_effects import Key, Timing
from heshare.devices.uncertainty import NORMAL_90
from heshare.lab.advice.alone import Alone, reason, tuned
from heshare.lab.advice.exports import export
from heshare.lab.advice.measured import Measured, busy_parts, place
from heshare.lab.advice.options import (
    ALONE,
    MIG,
    MPS,
    SMALL,
    Base,
    Option,
    Way,
    alone,
    best_clock,
    option,
    simplest,
    ways,
)
from heshare.lab.systems.shared.mps_or_time_slices import limit_note
from heshare.lab.systems.shared.time_slicing import TIME_SLICE
from heshare.shared.errors import InputError, require
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import DEFAULT_PRECISION, MEASURED, Workload

MOST = 7
"""Most workloads of an advice: a card has at most as many MIG instances."""
HOST_FACTORS = (0.5, 2.0, 0.25, 4.0, 0.125, 8.0, 0.0625, 16.0)
"""Changes of the hosts' time that are tried, the nearest first."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Workloads on a card: each alone at its best, the ways to share, and whether sharing pays.

    Attributes:
        gpu: the card.
        workloads: the workloads, with copies repeated.
        alone: each workload alone.
        options: one after the other and each way of sharing, at the inference batch sizes given and at the best ones
            alone, at the default clock and at the best one if that gains. Measurements have only the default clock.
        base: one after the other at its best, which the options are compared with.
        best: the option that is recommended.
        recommendation: in a sentence, what sharing adds to the best of one after the other.
        given: the same for the inference batch sizes given, if others are better.
        changes: how much faster or slower hosts would reverse the recommendation.
        notes: limits of the model for these workloads.
    """

    gpu: Gpu
    workloads: tuple[Workload, ...]
    alone: tuple[Alone, ...]
    options: tuple[Option, ...]
    base: Option
    best: Option
    recommendation: str
    given: str
    changes: str
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row an option and workload, with ends of intervals; per_s and joules are of a sample."""
        rows = []
        for each in self.options:
            for at, workload in enumerate(each.way.workloads):
                row: dict[str, object] = {"option": each.way.name, "workload": name_of(workload)}
                row |= {"batch_size": workload.batch_size, "share": each.way.shares[at], "sm_mhz": each.sm_mhz}
                row |= {"power_w": each.power_w, "per_s": each.per_s[at]}
                ranges = {"speed": each.speed, "energy": each.energy, "time_s": each.time_s[at]}
                for key, found in (ranges | {"energy_j": each.energy_j[at]}).items():
                    row |= {key: found.value, f"{key}_low": found.low, f"{key}_high": found.high}
                rows.append(row | {"best": each is self.best})
        return pd.DataFrame(rows).astype({"sm_mhz": "Int64"})

    def summary(self) -> pd.DataFrame:
        """Return one after the other as given and at its best, and each way of sharing at its best, a row each."""
        shown = [self.options[0]]
        for name in dict.fromkeys(each.way.name for each in self.options):
            group = {each: each.score for each in self.options if each.way.name == name}
            shown.append(next((each for each in (self.best, self.base) if each in group), None) or simplest(group))

        rows = []
        for each in dict.fromkeys(shown):
            row = {"option": ">" * (each is self.best) + str(each)}
            if any(one.phase != MEASURED for one in self.workloads):
                row["batch"] = ", ".join(dict.fromkeys(str(one.batch_size) for one in each.way.workloads))
            row["power_w"] = f"{each.power_w:.0f}"
            changes = {"work a second": each.speed.change, "energy": each.energy.change}
            rows.append(row | (dict.fromkeys(changes, "compared with") if each is self.base else changes))
        return pd.DataFrame(rows)

    def export(self, target: str) -> str:
        """Return the recommended option as `mps` (shell commands) or `slurm` (a `--gres` for each job)."""
        return export(target, self.gpu, self.best, [name_of(one) for one in self.best.way.workloads])

    def __str__(self) -> str:
        sentences = (*map(str, self.alone), self.recommendation, self.given, self.changes, *self.notes)
        return "\n".join(filter(None, sentences))


def name_of(workload: Workload) -> str:
    """Return a workload as it is written."""
    return workload.model if workload.phase == MEASURED else str(workload)


def advise(
    gpu: str,
    workloads: Sequence[str | Measured] | str | Measured,
    *,
    precision: str = DEFAULT_PRECISION,
    engine: str = "eager",
) -> Advice:
    """Return workloads alone at their best and in each way of sharing, with intervals, and whether sharing pays.

    Args:
        gpu: a GPU of the catalogue, such as `A100`.
        workloads: up to 7, such as `resnet50:8`, `3xresnet50:8` (copies), `eaco_vgg16-train:32`, or a measurement of
            one alone on this card: a `Measured`, or `asr=per_s:104,w:155,sm:6`.
        precision: of workloads of the catalogue, one of `heshare.world.workload.PRECISIONS`.
        engine: of workloads of the catalogue, `eager` or `tensorrt`.

    Raises:
        InputError: an unknown GPU or workload, too many of them, or one that the card's memory does not hold.

    Example:
        >>> import heshare as hs
        >>> advice = hs.advise("A100", "2xresnet50:1")
        >>> print(advice.best, "does", advice.best.speed.change, "work a second")
        MIG at 4g, 3g, 1185 MHz does +15 % [+9, +21] work a second
    """
    case = case_of(gpu, workloads, precision=precision, engine=engine)
    found = case.workloads
    variants = case.variants()
    base, options, best = case.compared(variants)
    given = ""
    if base.workloads != found and len(found) > 1:
        own = replace(case, keep_sizes=True).compared(variants)
        given = case.sentence(*own, variants, "at the inference batch sizes given")
    return Advice(
        gpu=case.gpu,
        workloads=found,
        alone=case.alone(variants),
        options=tuple(options),
        base=_separate(options, base),
        best=best,
        recommendation=case.sentence(base, options, best, variants, "on top of that"),
        given=given,
        changes=_changes(case, pays=best.way.name != ALONE) if len(found) > 1 else "",
        notes=_notes(case.gpu, options, best),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A question to `advise`: workloads on a card, with what was measured of some; `keep_sizes` keeps batch sizes."""

    gpu: Gpu
    workloads: tuple[Workload, ...]
    measured: Mapping[Workload, Measured]
    keep_sizes: bool = False

    def needs_mib(self, workloads: Iterable[Workload]) -> tuple[float, ...]:
        known = {workload: one.memory_mib for workload, one in self.measured.items()}
        return tuple(known[one] if one in known else least_memory_mib(one) for one in workloads)

    def variants(self) -> list[Constants]:
        """Return constants with likely inputs, and with both ends of unknown ones."""
        return [self.constants(end=end) for end in (0, -1, 1)]

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

    def best_alone(self, one: Workload, constants: Constants) -> tuple[Workload, int | None]:
        """Return a workload with its best inference batch size, and its best clock; as measured, a measurement."""
        return (one, None) if one in self.measured else tuned(self.gpu, one, constants)

    def alone(self, variants: Sequence[Constants]) -> tuple[Alone, ...]:
        """Return each workload alone, as given and at its best; copies once."""
        found = []
        for one in dict.fromkeys(self.workloads):
            known = self.measured.get(one)
            knows_host = known is None or known.gpu_pct is not None
            given = option(self.gpu, alone([one]), None, variants, Base((one,)))
            said = reason(self.gpu, one, variants[0], knows_host=knows_host)
            best, best_said = given, said

            better, mhz = self.best_alone(one, variants[0])
            if (better, mhz) != (one, None):
                best = option(self.gpu, alone([better]), mhz, variants, Base((one,)))
                best_said = reason(self.gpu, better, variants[0], mhz)
            knows_power = known is None or known.power_w is not None
            found.append(Alone(name_of(one), given, best, said, best_said, known is not None, knows_power))
        return tuple(found)

    def fitting(self, sizes: tuple[Workload, ...]) -> tuple[Workload, ...]:
        """Return workloads with inference batch sizes halved until all fit the card at once; not below those given."""
        found = sizes
        while found != self.workloads and sum(self.needs_mib(found)) > self.gpu.memory_mib:
            pairs = zip(found, self.workloads, strict=True)
            halves = (max(min(own.batch_size, one.batch_size), one.batch_size // 2) for one, own in pairs)
            halved = [replace(one, batch_size=half) for one, half in zip(found, halves, strict=True)]
            if tuple(halved) == found:
                break
            found = tuple(halved)
        return found

    def compared(self, variants: Sequence[Constants]) -> tuple[Base, list[Option], Option]:
        """Return one after the other at its best, the options relative to it, the simplest first, and the best one."""
        best = {one: one if self.keep_sizes else self.best_alone(one, variants[0])[0] for one in self.workloads}
        sizes = tuple(best[one] for one in self.workloads)
        base = Base(sizes, self.best_clock(alone(sizes), variants[0]))
        found = []
        for workloads in dict.fromkeys((self.workloads, self.fitting(sizes), sizes)):
            for way in ways(self.gpu, workloads, self.needs_mib(workloads), variants[0]):
                clocks = dict.fromkeys((None, self.best_clock(way, variants[0])))
                found += [option(self.gpu, way, mhz, variants, base) for mhz in clocks]
        found.sort(key=lambda each: each.way.name != ALONE)

        separate, shared = _separate(found, base), _best_shared(found)
        pays = shared is not None and shared.score > (1.0 + SMALL) * separate.score
        return base, found, shared if shared is not None and pays else separate

    def best_clock(self, way: Way, constants: Constants) -> int | None:
        """Return the best clock of a way; of measurements no other one is known than the default."""
        return None if self.measured else best_clock(self.gpu, way, constants)

    def sentence(
        self, base: Base, options: Sequence[Option], best: Option, variants: Sequence[Constants], where: str
    ) -> str:
        """Return whether sharing pays, and what it changes relative to the base."""
        if len(self.workloads) == 1:
            one = name_of(self.workloads[0]) + "=..." * bool(self.measured)
            return f"One workload is not shared. To see what copies add: heshare advise {self.gpu.name} 2x{one}"
        shared = _best_shared(options)
        if shared is None:
            needed_mib = sum(self.needs_mib(self.workloads))
            found = f"together they need {needed_mib:.0f} MiB or more of {self.gpu.memory_mib:.0f}"
            return f"Sharing does not pay {where}: {found}."

        # Whether it surely does more work is judged at the default clocks, since a lower one trades work for energy.
        sure = option(self.gpu, shared.way, None, variants, Base(base.workloads)).speed.low > 1.0
        verdict = "does not pay" if best is not shared else "pays" if sure else "may pay"
        changes = f"{shared.speed.change} work a second and {shared.energy.change} energy"
        measure = " (measure it)" * (verdict == "may pay")
        return f"Sharing {verdict} {where}{measure}: {changes} with {shared}."


def case_of(
    gpu: str,
    workloads: Sequence[str | Measured] | str | Measured,
    *,
    precision: str = DEFAULT_PRECISION,
    engine: str = "eager",
) -> Case:
    """Return the question to `advise`, with its arguments and errors."""
    found, measured = _parsed(workloads, precision, engine)
    case = Case(catalogue.gpu(gpu), found, measured)
    for one, needed_mib in zip(found, case.needs_mib(found), strict=True):
        if needed_mib > case.gpu.memory_mib:
            expected = f"at most the {case.gpu.memory_mib:.0f} MiB of {case.gpu.name}"
            raise InputError(f"{one}, which needs {needed_mib:.0f} MiB or more", expected, "Choose a larger GPU.")
    return case


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
    return tuple(found), measured


def _separate(options: Sequence[Option], base: Base) -> Option:
    return next(each for each in options if (each.way, each.sm_mhz) == (alone(base.workloads), base.sm_mhz))


def _best_shared(options: Sequence[Option]) -> Option | None:
    shared = {each: each.score for each in options if each.way.name != ALONE}
    return simplest(shared) if shared else None


def _notes(gpu: Gpu, options: Sequence[Option], best: Option) -> tuple[str, ...]:
    if best.way.name == MIG:
        return ("No power was measured in MIG instances: the extra power of co-runners is not modelled.",)
    if best.way.name != MPS:
        return ()
    alike = [each for each in options if each.way.workloads == best.way.workloads and each.sm_mhz is None]
    rates = {each.way.name: each.per_s for each in reversed(alike)}
    ratios = [fast / slow for fast, slow in zip(rates[MPS], rates[TIME_SLICE], strict=True)]
    note = limit_note(gpu.name, best.way.residents, ratios=ratios)
    return (note[:1].upper() + note[1:],) if note else ()


def _changes(case: Case, *, pays: bool) -> str:
    """Return the nearest change of the hosts' time that reverses whether sharing pays."""
    for host in HOST_FACTORS:
        *_, best = case.compared([case.constants(host=host)])
        if (best.way.name != ALONE) is not pays:
            return f"A host {max(host, 1 / host):g} times as {'slow' if host > 1 else 'fast'} would reverse this."
    return f"No host up to {max(HOST_FACTORS):g} times as fast or as slow would reverse this."

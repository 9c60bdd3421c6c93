"""A workload alone on a card: its best inference batch size and clock, and where its time goes."""

from dataclasses import dataclass, replace

from heshare.devices.board_power import memory_slowdown
from heshare.devices.constants import Constants, card_row
from heshare.devices.device_model import co_run, co_run_rates, resident_iteration
from heshare.lab.advice.options import Option, score, simplest, tried_clocks
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

SIZES = tuple(2**power for power in range(9))
"""Inference batch sizes that are tried; few records of the device model have larger ones."""
LEAST_PART = 0.1
"""Shorter parts of the time are not said."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A workload alone on a card: as it is given, and at its best.

    Attributes:
        name: the workload, as it was written.
        given: as given, at the card's default clock.
        best: at the inference batch size and clock with the highest score; the same as `given` where none gains more
            than `options.SMALL`, and for measurements.
        given_reason, best_reason: where the time of each goes.
        measured: whether it is known by measurements alone.
        knows_power: whether its power is known.
    """

    name: str
    given: Option
    best: Option
    given_reason: str
    best_reason: str
    measured: bool = False
    knows_power: bool = True

    def __str__(self) -> str:
        unit = "an iteration" if self.measured else "a batch"
        joules = f"{_number(self.given.energy_j[0].value)} J each, " if self.knows_power else ""
        time = f"{_number(1e3 * self.given.time_s[0].value)} ms {unit}"
        text = f"{self.name} alone: {_number(self.given.per_s[0])} a second, {joules}{time}; {self.given_reason}."
        if self.measured:
            return text
        if self.best is self.given:
            return f"{text}\n  That is its best: no other inference batch size or clock gains 3 %."
        (workload,) = self.best.way.workloads
        place = f"batch {workload.batch_size}" if workload.phase == "inference" else "this batch size"
        if self.best.sm_mhz is not None:
            place += f" and {self.best.sm_mhz} MHz (or a power limit of {self.best.power_w:.0f} W)"
        joules = f"{_number(self.best.energy_j[0].value)} J each"
        time = f"{_number(1e3 * self.best.time_s[0].value)} ms a batch"
        gain = f"{self.best.speed.change} a second, {joules}, {time}; {self.best_reason}"
        return f"{text}\n  Best alone, at {place}: {gain}."


def tuned(gpu: Gpu, workload: Workload, constants: Constants) -> tuple[Workload, int | None]:
    """Return a workload with its best inference batch size, and its best clock, MHz; None is the card's default.

    The best has the highest `options.score`. As given, then the smallest size, then the highest clock is
    taken among those that are within `options.SMALL`. Sizes fit the card's memory. Only inference has other sizes.
    """
    sizes = {workload: workload}
    if workload.phase == "inference":
        larger = (replace(workload, batch_size=size) for size in SIZES)
        sizes |= {one: one for one in larger if catalogue.memory_mib(one) <= gpu.memory_mib}

    scores: dict[Workload, dict[int | None, float]] = {}
    for one in sizes:
        scores[one] = {}
        for mhz in tried_clocks(gpu):
            found = co_run_rates(gpu, (Resident(one),), mhz, constants=constants)
            per_s = one.batch_size / found.times_s[0]
            scores[one][mhz] = score(per_s, found.power_w / per_s)

    best = simplest({one: max(of_clock.values()) for one, of_clock in scores.items()})
    return best, simplest(scores[best])


def reason(
    gpu: Gpu, workload: Workload, constants: Constants, sm_mhz: int | None = None, *, knows_host: bool = True
) -> str:
    """Return in a few words where the time of a workload alone at a clock goes: the two longest parts of an iteration.

    Without `knows_host` it is not known which part of the time it waits for its host.
    """
    estimate = co_run(gpu, (Resident(workload),), sm_mhz, constants=constants)
    iteration, time_s = resident_iteration(constants, gpu.name, Resident(workload)), estimate.tasks[0].time_s
    slow = gpu.max_mhz / estimate.sm_mhz
    card = card_row(constants.power[gpu.name], constants.contention[gpu.name], gpu)
    stalled = float(memory_slowdown(card, estimate.sm_mhz))

    holds = f"holds {100.0 * slow * iteration.batch_s / time_s:.0f} % of the SMs"
    if not knows_host:
        return f"{holds} (with gpu:, also the wait for its host)"
    parts = {
        "fills the SMs": slow * iteration.batch_s / time_s,
        "waits for its host": 1.0 - iteration.gpu_s(slow, stalled) / time_s,
        "waits for memory": stalled * iteration.memory_s / time_s,
        "runs kernels too small for the SMs": slow * (iteration.sms_s - iteration.batch_s) / time_s,
        "waits between kernels": iteration.fixed_s / time_s,
    }
    longest = sorted(parts, key=lambda each: -parts[each])[:2]
    said = [f"{each} {100.0 * parts[each]:.0f} %" for each in longest if parts[each] >= LEAST_PART]
    said[-1] += " of the time"
    said += [holds] * ("fills the SMs" not in longest)
    if estimate.sm_mhz < (sm_mhz or gpu.max_mhz):
        said.append(f"is held at {estimate.sm_mhz:.0f} MHz by the power limit")
    return ", ".join(said)


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000.0 else f"{value:,.0f}"

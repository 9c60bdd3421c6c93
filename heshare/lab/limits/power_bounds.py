"""Upper bounds of a GPU's power in a state it is not in yet: by prediction, by readings, by the clock and the card.

A bound is the least of
- the board's own limit (TDP);
- the power of SMs that are all busy at the clock, with the strongest load of the card (for inference);
- the prediction, times one plus a margin;
- what a reading of the same residents at another clock allows. Its dynamic part goes with V(f)^2 f times the load
  (`heshare.devices.board_power`), and a lower clock raises the load at most as 1/f: so at a higher clock it grows at
  most with V(f)^2 f, and a little more with several residents (`SHIFT`), at a lower one it falls at least with V(f)^2.
A state that was read is known, and needs no bound.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from heshare.devices.board_power import idle_power_w, switching
from heshare.devices.constants import default
from heshare.devices.derived_constants import FULL_BATCH
from heshare.devices.iteration_time import iteration_of
from heshare.prediction.predictor import Predictor
from heshare.shared.errors import InputError
from heshare.world import catalogue
from heshare.world.gpu import Gpu, spread_clocks
from heshare.world.workload import Resident, Workload

Residents = tuple[Resident, ...]
Clock = int | None

MARGIN = 0.6
"""Part by which power may be above its prediction.

Measured: of 4,500 random sets of 1 to 4 residents at random clocks of T4, V100 and A100 the emulated GPUs drew at most
1.57 times what the shipped predictor says, 99 % of them at most 1.31. A wide margin costs a second: power is then read.
"""
SHIFT, SHIFT_FAR, MOST_SHIFT = 0.15, 0.4, 0.6
"""Part by which the dynamic power of several residents may grow beyond V(f)^2 f: near by, more for each time that the
clock is higher, and at most. They share the SMs in other parts then.

Measured on 46,000 random sets of 1 to 4 residents at four random clocks of T4, V100 and A100: one resident never grew
more than V(f)^2 f, several by at most 0.52 of it (285 to 630 MHz), and by 0.15 where the clock was 1.16 times as high.
"""
LEVELS = 16
"""Clocks of a card's grid among which a budget chooses, evenly spread."""
_NOWHERE = -1
_DECAY = 0.1
"""Weight of a reading below the known power of its state: real power fluctuates, so peaks are forgotten slowly."""


@dataclass(frozen=True, slots=True)
class ClockPrediction:
    """Prediction for a set of residents at one clock: power, W, and seconds per iteration of each."""

    power_w: float
    times_s: tuple[float, ...]


class PowerBounds:
    """Upper bounds of the power of GPUs by their residents and requested clocks, which learn from readings.

    `margin` is the part by which power may be above its prediction.
    """

    def __init__(self, predictor: Predictor, margin: float = MARGIN) -> None:
        self._predictor, self._margin = predictor, margin
        self._known: dict[tuple[str, Residents], dict[Clock, tuple[float, float]]] = {}
        self._bounds: dict[tuple[str, Residents], dict[Clock, float]] = {}
        self._predicted: dict[tuple[str, Residents], dict[Clock, ClockPrediction | None]] = {}

    def learn(self, gpu: Gpu, residents: Residents, sm_mhz: Clock, power_w: float, reached_mhz: float) -> None:
        """Take over a reading of the power of residents that run at a requested clock, W, and of the clock reached."""
        known = self._known.setdefault((gpu.name, residents), {})
        before_w, _ = known.get(sm_mhz, (-math.inf, 0.0))
        peak_w = power_w if power_w >= before_w else before_w + _DECAY * (power_w - before_w)
        reading = peak_w, min(reached_mhz, top_mhz(gpu, sm_mhz))
        if known.get(sm_mhz) != reading:
            known[sm_mhz] = reading
            self._bounds.pop((gpu.name, residents), None)

    def bound_w(self, gpu: Gpu, residents: Residents, sm_mhz: Clock) -> float:
        """Return an upper bound of the power of residents at a requested clock (None: the card's own), W."""
        if not residents:
            return idle_w(gpu)
        kept = self._bounds.setdefault((gpu.name, residents), {})
        if sm_mhz not in kept:
            kept[sm_mhz] = self._bound_w(gpu, residents, sm_mhz)
        return kept[sm_mhz]

    def _bound_w(self, gpu: Gpu, residents: Residents, sm_mhz: Clock) -> float:
        known = self._known.get((gpu.name, residents), {})
        if sm_mhz in known:
            return known[sm_mhz][0]
        bounds = [saturated_w(gpu, residents, sm_mhz)]
        several, top = len(residents) > 1, top_mhz(gpu, sm_mhz)
        for reading in known.values():
            shift = min(MOST_SHIFT, SHIFT + SHIFT_FAR * max(0.0, top / reading[1] - 1.0))
            bounds.append(_scaled_w(gpu, top, *reading, 1.0 + several * shift))
        predicted = self.prediction(gpu, residents, sm_mhz)
        if predicted is not None:
            bounds.append((1.0 + self._margin) * predicted.power_w)
        return min(bounds)

    def expected_w(self, gpu: Gpu, residents: Residents, sm_mhz: Clock) -> float:
        """Return the power to be expected of residents at a requested clock, W: read, or predicted without a margin.

        A prediction is corrected by the reading of the same residents at the nearest clock.
        """
        bound_w = self.bound_w(gpu, residents, sm_mhz)
        known = self._known.get((gpu.name, residents), {})
        predicted = self.prediction(gpu, residents, sm_mhz) if residents and sm_mhz not in known else None
        if predicted is None:
            return bound_w
        nearest = min(known, key=lambda clock: abs(top_mhz(gpu, clock) - top_mhz(gpu, sm_mhz)), default=_NOWHERE)
        factor = 1.0
        if nearest != _NOWHERE and (there := self.prediction(gpu, residents, nearest)) is not None:
            factor = known[nearest][0] / there.power_w
        return min(bound_w, factor * predicted.power_w)

    def prediction(self, gpu: Gpu, residents: Residents, sm_mhz: Clock) -> ClockPrediction | None:
        """Return the prediction for residents at a clock; None where the predictor does not know them."""
        kept = self._predicted.setdefault((gpu.name, residents), {})
        if sm_mhz not in kept:
            self.predict(gpu, residents, [sm_mhz])
        return kept[sm_mhz]

    def predict(self, gpu: Gpu, residents: Residents, clocks: Sequence[Clock]) -> None:
        kept = self._predicted.setdefault((gpu.name, residents), {})
        missing = [clock for clock in clocks if clock not in kept]
        if not missing:
            return
        try:
            answer = self._predictor.co_run([residents] * len(missing), gpu, missing)
        except InputError:
            kept.update(dict.fromkeys(missing))
            return
        times = answer.time_s[:, : len(residents)].tolist()
        for clock, power_w, times_s in zip(missing, answer.power_w.tolist(), times, strict=True):
            good = np.isfinite(power_w)
            kept[clock] = ClockPrediction(float(power_w), tuple(times_s)) if good else None

    def slowdown(self, gpu: Gpu, residents: Residents, clock: Clock, slower: Clock) -> float:
        """Return by how much the residents are slower at one clock than at another, summed over them; 0 is not at all.

        Without a prediction their time goes with the clock.
        """
        ahead, behind = self.prediction(gpu, residents, clock), self.prediction(gpu, residents, slower)
        if ahead is None or behind is None:
            return len(residents) * (top_mhz(gpu, clock) / top_mhz(gpu, slower) - 1.0)
        pairs = zip(ahead.times_s, behind.times_s, strict=True)
        return sum([max(slow_s / fast_s - 1.0, 0.0) for fast_s, slow_s in pairs])


def as_residents(residents: Iterable[Resident]) -> Residents:
    """Return residents as the key of a set, in an order of their own."""
    return tuple(sorted(residents, key=str))


@lru_cache(maxsize=10_000)
def clock_levels(gpu: Gpu, wish: Clock) -> tuple[Clock, ...]:
    """Return the clocks from which a budget chooses, from the wished one down to the lowest of the grid.

    A card with one clock, or one that may not be set, has only the wish.
    """
    if len(gpu.clocks_mhz) == 1:
        return (wish,)
    grid = {gpu.clocks_mhz[0], *spread_clocks(gpu.clocks_mhz, LEVELS)}
    top = top_mhz(gpu, wish)
    return (wish, *sorted((clock for clock in grid if clock < top), reverse=True))


def top_mhz(gpu: Gpu, sm_mhz: Clock) -> int:
    """Return a requested clock, or the top clock for a card's own choice, MHz."""
    return gpu.max_mhz if sm_mhz is None else sm_mhz


def idle_w(gpu: Gpu) -> float:
    """Return the power of a GPU with a context or a held clock and nothing running, W."""
    power = default().power.get(gpu.name)
    return gpu.idle_w if power is None else max(gpu.idle_w, power.idle_w)


def saturated_w(gpu: Gpu, residents: Residents, sm_mhz: Clock) -> float:
    """Return the power of the card at a clock with all SMs busy under its strongest load, at most its TDP, W.

    The loads of inference are known; for residents that train and for language models it is the TDP.
    """
    constants = default()
    power = constants.power.get(gpu.name)
    if power is None or any(resident.workload.phase != "inference" for resident in residents):
        return gpu.tdp_w
    if any(catalogue.shape(resident.workload.model) is not None for resident in residents):
        return gpu.tdp_w
    full_w = power.clock_w + power.dynamic_w * _strongest(gpu, residents) * (1.0 + power.sharing)
    return min(gpu.tdp_w, _rest_w(gpu, top_mhz(gpu, sm_mhz)) + _switching(gpu, top_mhz(gpu, sm_mhz)) * full_w)


@lru_cache(maxsize=4096)
def _strongest(gpu: Gpu, residents: Residents) -> float:
    """Return the most work of residents that keep all SMs busy, over the GPU's dynamic power; (): of FP32 networks."""
    constants = default()
    asked = residents or [Resident(Workload(name, FULL_BATCH)) for name in catalogue.paper_models()]
    found = [load.intensity for (name, _, _), load in constants.loads.items() if name == gpu.name]
    # Tasks that take turns use the SMs for at most 2^(1 / sharpness) of the time together (`heshare.devices.crowding`).
    together = 2.0 ** (1.0 / constants.contention[gpu.name].sharpness)
    for resident in asked:
        iteration = iteration_of(constants, gpu.name, resident)
        draws = iteration.work_power
        found.append(draws.intensity + together * (draws.operations_s + draws.traffic_s) / iteration.work_s)
    return max([1.0, *found])


def _switching(gpu: Gpu, sm_mhz: float) -> float:
    return switching(default().power[gpu.name], sm_mhz, gpu.max_mhz)


def _rest_w(gpu: Gpu, sm_mhz: float) -> float:
    power = default().power.get(gpu.name)
    held_w = 0.0 if power is None else idle_power_w(power, sm_mhz, gpu.max_mhz) - power.idle_w
    return idle_w(gpu) + held_w


def _scaled_w(gpu: Gpu, sm_mhz: float, power_w: float, read_mhz: float, shift: float) -> float:
    """Return the bound at a clock that a reading at another one gives, W; `shift` is 1 for one resident."""
    power = default().power.get(gpu.name)
    if sm_mhz <= read_mhz:
        growth = 1.0 if power is None else _switching(gpu, sm_mhz) / _switching(gpu, read_mhz) * read_mhz / sm_mhz
    elif power is None:
        return gpu.tdp_w
    else:
        # Work beside the busiest resident draws more the higher the clock, too.
        beside = (1.0 + power.sharing * sm_mhz / gpu.max_mhz) / (1.0 + power.sharing * read_mhz / gpu.max_mhz)
        growth = _switching(gpu, sm_mhz) / _switching(gpu, read_mhz) * beside * shift
    return _rest_w(gpu, sm_mhz) + max(power_w - _rest_w(gpu, read_mhz), 0.0) * growth

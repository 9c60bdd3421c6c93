"""Division of a power limit among GPUs: which clocks, and which held starts, keep the sum of power below the limit."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from heshare.lab.limits.power_bounds import Clock, PowerBounds, Residents, as_residents, clock_levels, top_mhz
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

FLOOR = 0.4
"""Lowest clock, over the top clock, to which a GPU is slowed down so that another task can start.

Chosen among 0, 0.4, 0.6 and 0.75 by the average JCT of three policies at 75 and 60 % of their peak (three
repetitions of seed 1; the study uses seed 0). Down to about three quarters of the top clock the voltage falls and
the same work costs less energy. Below that a lower clock saves little, but a task that waits wastes its idle GPU.
"""


@dataclass(slots=True)
class GpuPower:
    """One GPU while a limit is divided: its residents, the clocks that it may have, and the chosen one.

    `wish` is the clock that its policy requested, MHz, None for the card's own. `present_w` is its power now, W, with
    the residents and the clock of `present`; None if it is not known. `read_w` is its last reading, W: no bound is
    below it with as many residents at no lower clock. `levels` are the clocks from the wish down, `level` is the place
    of the chosen one; a `fixed` clock cannot be set.
    """

    gpu: Gpu
    residents: Residents
    wish: Clock
    present_w: float | None = None
    present: tuple[Residents, Clock] | None = None
    read_w: float = 0.0
    level: int = 0
    fixed: bool = False
    levels: tuple[Clock, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.levels = (self.wish,) if self.fixed else clock_levels(self.gpu, self.wish)

    def changed(self, residents: Residents, wish: Clock) -> "GpuPower":
        """Return it with other residents, or another wish, at the wished clock."""
        return GpuPower(self.gpu, residents, wish, self.present_w, self.present, self.read_w, fixed=self.fixed)

    @property
    def clock(self) -> Clock:
        return self.levels[self.level]

    def power_w(self, bounds: PowerBounds, level: int | None = None, *, expected: bool = False) -> float:
        """Return an upper bound of its power at a level, by default the chosen one, or what is expected there, W."""
        clock = self.levels[self.level if level is None else level]
        if self.present_w is not None and self.present == (self.residents, clock):
            return self.present_w
        power_w = (bounds.expected_w if expected else bounds.bound_w)(self.gpu, self.residents, clock)
        if self.present is not None and len(self.residents) >= len(self.present[0]):
            lower = top_mhz(self.gpu, clock) < top_mhz(self.gpu, self.present[1])
            power_w = power_w if lower else max(power_w, self.read_w)
        return power_w

    def lowest(self, floor: float) -> int:
        """Return the last level whose clock is at least so much of the top clock; the wish if that is below."""
        least_mhz = floor * self.gpu.max_mhz
        allowed = [level for level, clock in enumerate(self.levels) if top_mhz(self.gpu, clock) >= least_mhz]
        return max(allowed, default=0)


def total_w(gpus: Sequence[GpuPower], bounds: PowerBounds) -> float:
    """Return an upper bound of the sum of power at the chosen clocks, W."""
    return sum([gpu.power_w(bounds) for gpu in gpus])


def expects_room(gpus: Sequence[GpuPower], bounds: PowerBounds, limit_w: float) -> bool:
    """Return whether the power to be expected at the lowest clocks above `FLOOR` is at most a limit, W."""
    for gpu in gpus:
        if gpu.residents:
            bounds.predict(gpu.gpu, gpu.residents, [gpu.levels[gpu.lowest(FLOOR)]])
    return sum([gpu.power_w(bounds, gpu.lowest(FLOOR), expected=True) for gpu in gpus]) <= limit_w


def choose_clocks(gpus: Sequence[GpuPower], bounds: PowerBounds, limit_w: float, floor: float) -> bool:
    """Choose the clock of each GPU so that the sum of power is at most a limit; return whether that is possible.

    From the wished clocks on, the step down is taken that saves most power for the slowdown of the tasks, until the sum
    is low enough. Idle GPUs keep their wish. No clock goes below `floor`, a part of the card's top clock; 0 is the
    lowest of the grid.
    """
    for gpu in gpus:
        gpu.level = 0
    sum_w = total_w(gpus, bounds)
    if sum_w <= limit_w:
        return True
    busy = [gpu for gpu in gpus if gpu.residents and gpu.lowest(floor) > 0]
    for gpu in busy:
        bounds.predict(gpu.gpu, gpu.residents, gpu.levels)
    steps = {id(gpu): _best_step(gpu, bounds, floor) for gpu in busy}
    while sum_w > limit_w:
        able = [(step, gpu) for gpu in busy if (step := steps[id(gpu)]) is not None]
        if not able:
            return False
        (_, level), gpu = max(able, key=lambda each: each[0][0])
        gpu.level = level
        steps[id(gpu)] = _best_step(gpu, bounds, floor)
        sum_w = total_w(gpus, bounds)
    _raise_again(busy, bounds, limit_w - sum_w)
    return True


def _raise_again(gpus: Sequence[GpuPower], bounds: PowerBounds, left_w: float) -> None:
    """Raise clocks as far as what the last step left unused permits, first where tasks are slowed down most."""

    def slowdown(gpu: GpuPower) -> float:
        return bounds.slowdown(gpu.gpu, gpu.residents, gpu.wish, gpu.clock)

    for gpu in sorted([gpu for gpu in gpus if gpu.level], key=slowdown, reverse=True):
        now_w = gpu.power_w(bounds)
        for level in range(gpu.level):
            more_w = gpu.power_w(bounds, level) - now_w
            if more_w <= left_w:
                gpu.level = level
                left_w -= max(more_w, 0.0)
                break


def _best_step(gpu: GpuPower, bounds: PowerBounds, floor: float) -> tuple[float, int] | None:
    """Return (watts saved for the slowdown, level) of the best step down; None if no step saves power."""
    now_w = gpu.power_w(bounds)
    best: tuple[float, int] | None = None
    for level in range(gpu.level + 1, gpu.lowest(floor) + 1):
        saved_w = now_w - gpu.power_w(bounds, level)
        if saved_w <= 0:
            continue
        slower = bounds.slowdown(gpu.gpu, gpu.residents, gpu.clock, gpu.levels[level])
        value = saved_w / max(slower, 1e-6)
        if best is None or value > best[0]:
            best = value, level
    return best


def with_resident(gpu: GpuPower, resident: Resident) -> Residents:
    """Return the residents of a GPU once another one has joined them."""
    return as_residents([*gpu.residents, resident])

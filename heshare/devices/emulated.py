"""The emulated GPU: the calibrated model in virtual time, behind the `Device` protocol."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from heshare.devices.constants import Constants, default
from heshare.devices.device import Progress, Reading
from heshare.devices.model import Estimate, co_run
from heshare.errors import DeviceError, InputError
from heshare.world.catalogue import memory_mib
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

_DONE = 1e-9
_BOARD = "board"


@dataclass(slots=True)
class NoiseModel:
    """Relative noise from one recording to the next, for what `EmulatedDevice.read` reports.

    The defaults come from the public record (`calibration.extras`): the median standard deviation over the mean of
    1,250 latencies under MPS on a V100 (icloud-ecnu/igniter), and the median scatter of power about a smooth curve over
    neighbouring clocks on an A100 (ghazanfarttu/Optimal-GPU-frequency-using-DNN-based-models).

    Attributes:
        time_cv: standard deviation of a time over the time.
        power_cv: standard deviation of a power over the power.
        rng: where the noise comes from.
    """

    rng: np.random.Generator
    time_cv: float = 0.0099
    power_cv: float = 0.0036

    def of(self, label: str) -> NoiseModel:
        """The same noise from a stream that the seed of `rng` and `label` decide, whatever was drawn before.

        Raises:
            InputError: `rng` has no seed.
        """
        seed = self.rng.bit_generator.seed_seq
        if not isinstance(seed, np.random.SeedSequence):
            raise InputError(
                column="rng", found="a generator without a seed", expected="np.random.default_rng(seed)", action="Seed."
            )
        words = np.frombuffer(hashlib.sha256(label.encode()).digest(), dtype="<u4").tolist()
        child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, *words))
        return replace(self, rng=np.random.default_rng(child))

    def factor(self, spread: float) -> float:
        """One factor with mean 1 and that relative standard deviation (lognormal, so never negative)."""
        if spread <= 0.0:
            return 1.0
        sigma2 = math.log1p(spread * spread)
        return math.exp(self.rng.normal(-0.5 * sigma2, math.sqrt(sigma2)))


@dataclass(slots=True)
class _Running:
    resident: Resident
    iterations: float
    memory_mib: float
    done: float = 0.0
    time_s: float = math.inf

    @property
    def remaining_s(self) -> float:
        return max(0.0, self.iterations - self.done) * self.time_s


class EmulatedDevice:
    """A GPU of the catalogue whose behaviour is `heshare.devices.model.co_run`, in virtual time.

    Args:
        gpu: which GPU.
        power_cap_w: its power limit, W; None is the card's own.
        noise: repeat noise on what `read` reports; None is none. Progress and energy are never noisy.
        constants: other constants than the calibrated ones.
    """

    provenance = "emulated"

    def __init__(
        self,
        gpu: Gpu,
        *,
        power_cap_w: float | None = None,
        noise: NoiseModel | None = None,
        constants: Constants | None = None,
    ) -> None:
        self._gpu = gpu
        self._cap_w = power_cap_w
        self._noise = self._seed_noise = noise
        self._held: dict[str, float] | None = None
        self._constants = constants or default()
        self._clock: int | None = None
        self._now_s = 0.0
        self._energy_j = 0.0
        self._running: dict[int, _Running] = {}
        self._known: dict[tuple[int | None, tuple[Resident, ...]], Estimate] = {}
        self._state = self._settle()

    @property
    def gpu(self) -> Gpu:
        """What it is."""
        return self._gpu

    def set_clock(self, sm_mhz: int | None) -> None:
        """Ask for an SM clock of the card's grid, MHz; None leaves the card to itself.

        Raises:
            InputError: the clock is not on the grid.
        """
        self._clock = None if sm_mhz is None else self._gpu.check_clock(sm_mhz)
        self._state = self._settle()

    def start(self, task_id: int, workload: Workload, mps_pct: int, iterations: float | None = None) -> None:
        """Start a task under an MPS limit; with `iterations=None` it runs until stopped.

        Raises:
            DeviceError: the id runs already, the memory does not fit, or there are too many clients.
        """
        needed_mib = memory_mib(workload)
        free_mib = self._gpu.memory_mib - sum(one.memory_mib for one in self._running.values())
        if task_id in self._running:
            raise self._refusal(f"task {task_id} runs here already", "Stop it first.")
        if len(self._running) >= self._gpu.mps_clients:
            raise self._refusal(f"{self._gpu.mps_clients} MPS clients run already", "Wait for one to end.")
        if needed_mib > free_mib:
            raise self._refusal(f"{workload} needs {needed_mib:.0f} MiB, {free_mib:.0f} are free", "Wait, or split.")
        wanted = math.inf if iterations is None else float(iterations)
        self._running[task_id] = _Running(Resident(workload, mps_pct), wanted, needed_mib)
        self._state = self._settle()

    def stop(self, task_id: int) -> float:
        """Stop a task, finished or not; returns the iterations that it completed here.

        Raises:
            DeviceError: no such task runs here.
        """
        if task_id not in self._running:
            raise self._refusal(f"no task {task_id} runs here", "Stop only what was started and has not completed.")
        stopped = self._running.pop(task_id)
        self._state = self._settle()
        return stopped.done

    def restart(self, label: str) -> None:
        """Set time, energy and progress to 0; what runs goes on, and repeat noise depends on `label` alone.

        Until the next restart the noise of the board's power and of each task's time stays what it is at first: it is
        noise from one recording to the next.
        """
        self._noise = None if self._seed_noise is None else self._seed_noise.of(label)
        self._held = {}
        self._now_s = self._energy_j = 0.0
        for one in self._running.values():
            one.done = 0.0

    def read(self) -> Reading:
        """What it does at this moment."""
        state, noise = self._state, self._noise
        time_cv, power_cv = (noise.time_cv, noise.power_cv) if noise else (0.0, 0.0)
        residents = {
            task: Progress(task, one.resident, one.done, one.time_s * self._factor(name, time_cv))
            for name, (task, one) in zip(self._names(), self._running.items(), strict=True)
        }
        request = self._gpu.max_mhz if self._clock is None else self._clock
        return Reading(
            time_s=self._now_s,
            requested_mhz=self._clock,
            sm_mhz=state.sm_mhz,
            power_w=state.power_w * self._factor(_BOARD, power_cv),
            energy_j=self._energy_j,
            residents=residents,
            throttled=state.sm_mhz < request,
            sm_util_pct=min(100.0, sum(task.sm_util_pct for task in state.tasks)),
            dram_util_pct=min(100.0, sum(task.dram_util_pct for task in state.tasks)),
            l2_util_pct=min(100.0, sum(task.l2_util_pct for task in state.tasks)),
        )

    def next_event_s(self) -> float:
        """When the next task completes if nothing changes, s; `inf` if none will."""
        return self._now_s + min((one.remaining_s for one in self._running.values()), default=math.inf)

    def advance(self, to_s: float) -> list[int]:
        """Go on to time `to_s`; returns the ids of tasks that completed by then, in order of completion.

        Raises:
            DeviceError: `to_s` is in the past.
        """
        if to_s < self._now_s:
            raise self._refusal(f"time {to_s} s asked for at {self._now_s} s", "Time only goes forward.")
        completed: list[int] = []
        while (event_s := self.next_event_s()) <= to_s and self._running:
            self._pass(event_s)
            ended = [task for task, one in self._running.items() if self._ended(one)]
            for task in ended:
                del self._running[task]
            completed += ended
            self._state = self._settle()
        self._pass(to_s)
        return completed

    def _factor(self, what: str, spread: float) -> float:
        """The noise of one reading: drawn anew, or held since the restart, whatever else is read in which order."""
        if self._noise is None:
            return 1.0
        if self._held is None:
            return self._noise.factor(spread)
        if what not in self._held:
            self._held[what] = self._noise.of(what).factor(spread)
        return self._held[what]

    def _names(self) -> list[str]:
        """A name for each task that runs, by what it is and not by its id: equal ones are told apart by a number."""
        if self._held is None:
            return [""] * len(self._running)
        seen: Counter[Resident] = Counter()
        names = []
        for one in self._running.values():
            seen[one.resident] += 1
            names.append(f"{one.resident}#{seen[one.resident]}")
        return names

    def _ended(self, one: _Running) -> bool:
        left_s = one.remaining_s
        return left_s <= _DONE * one.time_s or self._now_s + left_s <= self._now_s

    def _pass(self, to_s: float) -> None:
        """Let time pass with nothing changing."""
        step_s = to_s - self._now_s
        for one in self._running.values():
            one.done = min(one.iterations, one.done + step_s / one.time_s)
        self._energy_j += self._state.power_w * step_s
        self._now_s = to_s

    def _settle(self) -> Estimate:
        """The state that the present residents and clock lead to."""
        key = (self._clock, tuple(one.resident for one in self._running.values()))
        state = self._known.get(key)
        if state is None:
            state = self._known[key] = co_run(
                self._gpu, key[1], self._clock, power_cap_w=self._cap_w, constants=self._constants
            )
        for one, task in zip(self._running.values(), state.tasks, strict=True):
            one.time_s = task.time_s
        return state

    def _refusal(self, found: str, action: str) -> DeviceError:
        return DeviceError(f"{self._gpu.name} (emulated): {found}. {action}")

"""Carrying a plan out: the visits and kernel traces that the journal does not hold, as long as there is time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from heshare.devices.device import Device
from heshare.errors import DeviceError, InputError
from heshare.profiles import kernels
from heshare.profiles.budget import Step
from heshare.profiles.journal import Journal
from heshare.profiles.kernels import KernelRow
from heshare.profiles.measure import Bench
from heshare.profiles.protocol import Protocol
from heshare.profiles.visit import Setup
from heshare.world.workload import Workload

Trace = Callable[[Workload], tuple[KernelRow, ...]]
"""What traces a workload alone on the GPU; it is closed after the last one if it has `close`."""
Item = Step | Workload
"""A visit to a setting, or a workload whose kernels are to be traced."""
TRACE_S = 8.0
"""How long the first kernel trace is taken to last, s."""
GIVE_UP = 2
"""So many traces that fail, and the rest is left out: what keeps a profiler from working keeps it for all."""


@dataclass(slots=True)
class Kernels:
    """The kernel traces of a recording.

    Attributes:
        trace: what traces a workload.
        workloads: what to trace, in this order.
        there: settings that the table has already, as `KernelRow.setting`.
        rows: what was traced, by workload.
        left_out: workloads that could not be traced, and why.
    """

    trace: Trace
    workloads: Sequence[Workload]
    there: frozenset[tuple[str, str, int, str]] = frozenset()
    rows: dict[str, tuple[KernelRow, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the table: what was traced, and what it held of others."""
        if not self.rows:
            return
        mine = [row for rows in self.rows.values() for row in rows]
        settings = {row.setting for row in mine}
        kept = [row for row in kernels.read(path) if row.setting not in settings] if path.exists() else []
        kernels.write([*kept, *mine], path)


class Session:
    """A device, its journal, and what is still to do.

    Args:
        device: an idle device; when a run is over it is idle again and its clock is left to the card.
        protocol: how to measure.
        log: what was done, and takes what is done.
        traced: the kernel traces; None leaves them out.

    Attributes:
        lost_s: the device's time that went into traces which failed, s; it is in no journal.
    """

    def __init__(self, device: Device, protocol: Protocol, log: Journal, traced: Kernels | None = None) -> None:
        self.lost_s = 0.0
        self._device, self._protocol, self._log, self._traced = device, protocol, log, traced
        self._bench = Bench(device, protocol)

    def run(self, items: Iterable[Item]) -> Iterator[Item]:
        """Do what the journal does not hold; every item is told when it is over.

        Raises:
            DeviceError: the device refuses a setting.
        """
        log = self._log
        getattr(self._device, "stand_by", _nothing)()
        try:
            if log.idle_w is None:
                log.add_idle(*self._bench.idle())
            for item in items:
                if isinstance(item, Workload):
                    self._trace(item)
                elif (str(item[0]), item[1]) not in log.visits:
                    log.add(self._bench.visit(*item))
                yield item
        except BaseException:
            # What went wrong first is what the user has to know.
            with suppress(DeviceError):
                self._bench.leave()
            raise
        self._bench.leave()

    def affordable(self, items: Iterable[Item], budget_s: float) -> Iterator[Item]:
        """Items as long as there is time for the next one, by what the last one of its kind took.

        What is in the journal counts as if it had been made now, so an interrupted recording ends where another would.
        """
        log, spent_s, last_s = self._log, self._log.idle_s, dict[int, float]()
        for item in items:
            tasks = 0 if isinstance(item, Workload) else len(item[0].residents)
            guess_s = TRACE_S if isinstance(item, Workload) else self._protocol.visit_s
            if spent_s + self.lost_s + max(last_s.get(tasks, guess_s), 0.0 if tasks == 0 else guess_s) > budget_s:
                return
            yield item
            if isinstance(item, Workload):
                took_s = log.kernels_s.get(str(item), 0.0)
            else:
                took_s = log.visits[str(item[0]), item[1]].took_s
            last_s[tasks] = took_s or guess_s
            spent_s += took_s

    def _trace(self, workload: Workload) -> None:
        log, traced, name = self._log, self._traced, str(workload)
        assert traced is not None, "a plan with traces needs what traces"
        if name not in log.kernels and not self._there(traced, workload):
            if len(traced.left_out) >= GIVE_UP:
                traced.left_out[name] = f"not tried after {GIVE_UP} that failed"
            else:
                found, took_s = self._bench.alone(lambda: _attempt(traced.trace, workload))
                if isinstance(found, str):
                    traced.left_out[name] = found
                    self.lost_s += took_s
                    warnings.warn(f"no kernels of {workload}: {found}", stacklevel=2)
                else:
                    log.add_kernels(workload, found, took_s)
        if name in log.kernels:
            traced.rows[name] = log.kernels[name]
        if workload == traced.workloads[-1]:
            getattr(traced.trace, "close", _nothing)()

    def _there(self, traced: Kernels, one: Workload) -> bool:
        return (self._device.gpu.name, one.model, one.batch_size, one.precision) in traced.there


def repeated(setups: Sequence[Setup], repeats: int, rng: np.random.Generator) -> Iterator[Step]:
    """Each setting so many times, in random order within each round."""
    for number in range(1, repeats + 1):
        yield from ((setups[at], number) for at in rng.permutation(len(setups)))


def with_kernels(steps: Iterable[Step], traced: Iterable[Workload]) -> Iterator[Item]:
    """A plan with the kernel traces before the first tasks that share the GPU, when each has been seen alone."""
    waiting = list(traced)
    for step in steps:
        if len(step[0].residents) > 1:
            yield from waiting
            waiting = []
        yield step
    yield from waiting


def _attempt(trace: Trace, workload: Workload) -> tuple[KernelRow, ...] | str:
    """The rows of a workload, or why there are none: a profiler that does not work spoils no recording."""
    try:
        return trace(workload)
    except (DeviceError, InputError) as error:
        return str(error)


def _nothing() -> None:
    """The end of what keeps nothing."""

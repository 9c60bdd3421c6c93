"""Carrying out a policy's actions, and refusing impossible ones with a message that says why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from heshare.devices.failing import Failed
from heshare.errors import InputError, PolicyError
from heshare.policies.policy import Action, Kind, Migrate, Pause, SetClock, Start, Wait
from heshare.running.gangs import alike, begin, rejoin, shares
from heshare.running.state import Job, Slot, State, enter, leave
from heshare.running.timeline import Interval
from heshare.world.task import Task
from heshare.world.workload import SHARINGS

if TYPE_CHECKING:
    from heshare.running.loop import Loop

# What is left of a task after a pause is rounded; this share of it counts as nothing.
_NOTHING = 1e-12


class Hands:
    """Starts, stops and clocks on behalf of a policy, and keeps the books of who is where."""

    def __init__(self, loop: Loop, start_cost_s: float) -> None:
        self._loop = loop
        self._start_cost_s = start_cost_s

    def act(self, action: Action, now_s: float) -> None:
        """Carry out one action.

        Raises:
            PolicyError: it is impossible.
            DeviceError: the device refuses.
        """
        if isinstance(action, Start):
            self._start(action, now_s)
        elif isinstance(action, SetClock):
            self._set_clock(action, now_s)
        elif isinstance(action, Pause):
            self._pause(action, now_s)
        elif isinstance(action, Migrate):
            self._migrate(action, now_s)
        elif isinstance(action, Wait):
            self._wait_until(action, now_s)
        else:
            self._refuse(action, f"is a {type(action).__name__}", "Return Start, SetClock, Pause, Migrate or Wait.")

    def wait(self, job: Job) -> None:
        """Put a job into the waiting room."""
        self._loop.waiting._enter(job.task)
        self._loop.remaining[job.task.id] = job.left

    def finish(self, job: Job, now_s: float, others: Sequence[Slot]) -> None:
        """A job has completed: stop it on the other GPUs that it still runs on, close its books."""
        if job.led:
            rejoin(job, now_s)
            seen = others[0].glance()
            self._loop.recorder.alike([slot.index for slot in others], now_s, seen)
        else:
            self._stop(job, others, now_s)
        self._close(job, now_s, job.left, "completed")
        job.left = 0.0
        job.state = State.DONE

    def fail(self, job: Job, slot: Slot, now_s: float, failed: Failed) -> bool:
        """A job has failed on a GPU: take it off its others, close its books; whether it waits to be tried again."""
        if job.state is State.RUNNING:
            self._stop(job, [other for other in job.slots if other is not slot], now_s)
        self._close(job, now_s, 0.0, f"failed: {failed.kind}", failed)
        again = self._loop.observer.again(failed)
        job.state = State.WAITING if again else State.FAILED
        if again:
            self.wait(job)
        return again

    def _start(self, action: Start, now_s: float) -> None:
        job, slots = self._job(action, action.task), self._slots(action)
        if job.state is not State.WAITING:
            self._refuse(action, f"task {action.task} {job.state.value}", "Start only tasks of view.waiting.")
        self._place(action, job, slots, now_s)
        self._loop.waiting._leave(job.task)
        del self._loop.remaining[job.task.id]

    def _place(self, action: Start | Migrate, job: Job, slots: tuple[Slot, ...], now_s: float) -> None:
        if len(slots) != job.task.gpus and len(slots) not in job.task.widths:
            self._refuse_width(action, job.task)
        if action.batch_size is not None and action.batch_size < 1:
            self._refuse(action, f"an inference batch size of {action.batch_size}", "Choose one of at least 1.")
        job.resize(action.batch_size, len(slots))
        led = len(slots) > 1 and alike(slots, 0)
        for slot in slots[:1] if led else slots:
            self._loop.touch(slot, now_s)
            self._check_room(action, job, slot)
        job.slots, job.mps_pct, job.sharing, job.since_s = slots, action.mps_pct, action.sharing, now_s
        job.starts += 1
        enter(job)
        if self._start_cost_s > 0:
            job.state = State.LOADING
            ready_s = now_s + self._start_cost_s
            self._loop.plan(ready_s, Kind.COMPLETION.value, self._loaded, job, job.starts)
        else:
            self._go(job, led, now_s)

    def _loaded(self, now_s: float, job: Job, start: int) -> None:
        if job.starts == start and job.state is State.LOADING:
            led = len(job.slots) > 1 and alike(job.slots, 1)
            for slot in job.slots[:1] if led else job.slots:
                self._loop.touch(slot, now_s)
            self._go(job, led, now_s)
            self._loop.settle(now_s)

    def _go(self, job: Job, led: bool, now_s: float) -> None:
        """Let the first GPU run what is left, the others of a gang until they are stopped, unless they are led."""
        job.state, job.led, job.went_s = State.RUNNING, led, now_s
        begin(job, job.slots[0], job.left / job.scale)
        if len(job.slots) > 1 and not led:
            for slot in job.slots:
                shares(slot, "a gang")
            for slot in job.slots[1:]:
                begin(job, slot, None)

    def _set_clock(self, action: SetClock, now_s: float) -> None:
        slot = self._slot(action, action.gpu)
        if action.sm_mhz is not None:
            try:
                slot.device.gpu.check_clock(action.sm_mhz)
            except InputError as error:
                raise PolicyError(f"{self._loop.policy.name}, {action}: {error}") from error
        self._loop.touch(slot, now_s)
        slot.device.set_clock(action.sm_mhz)

    def _pause(self, action: Pause, now_s: float) -> None:
        job = self._job(action, action.task)
        if self._take_off(action, job, now_s, "paused"):
            job.state = State.WAITING
            self.wait(job)

    def _migrate(self, action: Migrate, now_s: float) -> None:
        job, slots = self._job(action, action.task), self._slots(action)
        if self._take_off(action, job, now_s, "migrated"):
            self._place(action, job, slots, now_s)

    def _take_off(self, action: Pause | Migrate, job: Job, now_s: float, outcome: str) -> bool:
        """Stop a job where it is; False if it has just completed instead."""
        if job.state not in (State.RUNNING, State.LOADING):
            if job.task.id in self._loop.untold:
                return False
            self._refuse(action, f"task {job.task.id} {job.state.value}", "Name a task that runs on a GPU.")
        for slot in job.slots:
            self._loop.touch(slot, now_s)
        if not job.slots:
            return False
        done = 0.0 if job.state is State.LOADING else self._stop(job, job.slots, now_s) * job.scale
        if job.left - done <= _NOTHING * job.task.iterations:
            self._loop.finish_now(job, now_s)
            return False
        done = job.saved(done)
        self._close(job, now_s, done, outcome)
        job.left -= done
        return True

    def _stop(self, job: Job, slots: Sequence[Slot], now_s: float) -> float:
        """Stop a job on some of its GPUs; returns the iterations that it did on the first of them."""
        done = 0.0
        for slot in reversed(slots):
            self._loop.touch(slot, now_s)
            done = slot.device.stop(job.task.id)
            slot.changed()
        return done

    def _wait_until(self, action: Wait, now_s: float) -> None:
        if not action.until_s > now_s:
            self._refuse(action, f"it is {now_s:g} s", "Wait for a time ahead.")
        self._loop.plan_tick(action.until_s)

    def _close(self, job: Job, now_s: float, done: float, outcome: str, failed: Failed | None = None) -> None:
        """Take a job off its GPUs' books; the members of a gang did the same part each."""
        size, part, gpus = job.workload.batch_size, done / len(job.slots), [slot.index for slot in job.slots]
        leave(job)
        interval = Interval(job.task.id, gpus[0], job.since_s, now_s, job.mps_pct, size, part, outcome)
        self._loop.recorder.close(interval, gpus)
        self._loop.observer.closed(interval, failed)
        job.slots = ()
        job.held = job.led = False

    def _check_room(self, action: Start | Migrate, job: Job, slot: Slot) -> None:
        gpu = slot.device.gpu
        if not 1 <= action.mps_pct <= 100:
            self._refuse(action, f"an MPS percentage of {action.mps_pct}", "Choose one from 1 to 100.")
        if len(slot.jobs) >= gpu.mps_clients:
            self._refuse(action, f"GPU {slot.index} ({gpu.name}) has {len(slot.jobs)} MPS clients", "It takes no more.")
        for other in slot.jobs.values():
            if action.sharing.split("-")[0] != other.sharing.split("-")[0]:
                self._refuse(
                    action,
                    f"task {other.task.id} on GPU {slot.index} ({gpu.name}) shares it by {other.sharing}",
                    "Share as the others do, or choose another GPU.",
                )
        if job.need_mib > slot.free_mib:
            self._refuse(
                action,
                f"{job.workload} needs {job.need_mib:.0f} MiB and GPU {slot.index} ({gpu.name}) "
                f"has {slot.free_mib:.0f} MiB free of {gpu.memory_mib:.0f} MiB",
                "Wait until there is room, or choose another GPU.",
            )

    def _job(self, action: Action, task: int) -> Job:
        if not 0 <= task < len(self._loop.jobs):
            self._refuse(action, f"no task {task}", f"Tasks are 0 to {len(self._loop.jobs) - 1}.")
        return self._loop.jobs[task]

    def _slot(self, action: Action, gpu: int) -> Slot:
        if not 0 <= gpu < len(self._loop.slots):
            self._refuse(action, f"no GPU {gpu}", f"GPUs are 0 to {len(self._loop.slots) - 1}.")
        return self._loop.slots[gpu]

    def _slots(self, action: Start | Migrate) -> tuple[Slot, ...]:
        """The GPUs of a start: one, or those of a gang."""
        if action.sharing not in SHARINGS:
            self._refuse(action, f"sharing by {action.sharing!r}", f"Choose one of {', '.join(SHARINGS)}.")
        if not action.also:
            return (self._slot(action, action.gpu),)
        gpus = (action.gpu, *action.also)
        for gpu in (min(gpus), max(gpus)):
            self._slot(action, gpu)
        if len(set(gpus)) < len(gpus):
            self._refuse(action, "a GPU twice", "Give a gang different GPUs.")
        every = self._loop.slots
        return tuple([every[gpu] for gpu in gpus])

    def _refuse_width(self, action: Start | Migrate, task: Task) -> NoReturn:
        widths = sorted({task.gpus, *task.widths})
        runs = f"runs on {' or '.join(map(str, widths))} GPU{'s' * (widths != [1])}"
        self._refuse(action, f"task {task.id} {runs}, not {1 + len(action.also)}", "Name as many in gpu and also.")

    def _refuse(self, action: Action, found: str, advice: str) -> NoReturn:
        raise PolicyError(f"{self._loop.policy.name}, at {self._loop.clock.now_s():g} s, {action}: {found}. {advice}")

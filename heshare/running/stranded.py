"""The errors for a run that cannot go on."""

from __future__ import annotations

from collections.abc import Sequence

from heshare.errors import DeviceError, PolicyError
from heshare.running.state import Job, Slot, State


def stranded(policy: str, now_s: float, why: str, jobs: Sequence[Job]) -> PolicyError:
    """The error that names each unfinished task with its state."""
    groups = {
        state: [job.task.id for job in jobs if job.state is state]
        for state in State
        if state not in (State.DONE, State.FAILED)
    }
    lists = "; ".join(f"{_some(ids)} {state.value}" for state, ids in groups.items() if ids)
    never = _some([job.task.id for job in jobs if not job.starts])
    return PolicyError(
        f"{policy}, at {now_s:g} s: {why}. Unfinished: tasks {lists}. "
        f"Never started: {never}. Start every waiting task, or return Wait(until_s) to be asked again."
    )


def stuck(slot: Slot, now_s: float) -> DeviceError:
    """The error for a device that is always about to complete something."""
    return DeviceError(
        f"GPU {slot.index} ({slot.device.gpu.name}) announces an event at {now_s:g} s again and again, "
        "and nothing completes. Its next_event_s must lie ahead once advance has been called."
    )


def _some(ids: Sequence[int]) -> str:
    shown = ", ".join(str(task) for task in ids[:10])
    return f"{shown} and {len(ids) - 10} more" if len(ids) > 10 else shown or "none"

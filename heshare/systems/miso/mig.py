"""MIG: instances of a GPU with SMs and memory of their own; which fit together, and how fast tasks are in them.

Slices, memory slices and where an instance may begin are those of the A100 and its successors: a `1g` instance has 1 of
7 compute slices and 1 of 8 memory slices, and so on.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

from heshare.devices.device_model import IterationTimes, register_sharing_model, sharing_error
from heshare.devices.iteration_time import Iteration
from heshare.systems.shared.training import mig_step_times_s
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident, Workload

COMPUTE, MEMORY = 7, 8
"""Compute slices and memory slices of a GPU."""
MEMORY_SLICES = MappingProxyType({1: 1, 2: 2, 3: 4, 4: 4, 7: 8})
"""Memory slices of an instance, by its compute slices."""
SLICES: tuple[int, ...] = tuple(MEMORY_SLICES)
"""Compute slices of the kinds of instance, ascending."""
_STARTS = MappingProxyType({1: tuple(range(7)), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)})

Partition = tuple[int, ...]
"""Compute slices of each instance, descending."""


def has_mig(gpu: Gpu) -> bool:
    """Return whether a GPU can be partitioned into the instances that are modelled, those of seven slices."""
    return gpu.mig_slices == COMPUTE


def slices_of(resident: Resident) -> int:
    """Return the compute slices of a resident's instance, such as 3 for the sharing `mig-3g`."""
    return int(resident.sharing.removeprefix("mig-").removesuffix("g"))


def sharing_of(gpu: Gpu, slices: int) -> str:
    """Return the sharing of a task in an instance of so many compute slices; `mps` on a GPU without MIG."""
    return f"mig-{slices}g" if has_mig(gpu) else "mps"


def memory_mib(gpu: Gpu, slices: int) -> float:
    """Return the memory of an instance of so many compute slices, MiB."""
    return gpu.memory_mib * MEMORY_SLICES[slices] / MEMORY


@cache
def placeable() -> frozenset[Partition]:
    """Return every set of instances that a GPU can hold at once, the empty one included."""
    found: set[Partition] = set()

    def extend(held: Partition, taken: int) -> None:
        found.add(held)
        for slices in SLICES:
            for start in _STARTS[slices]:
                mask = ((1 << MEMORY_SLICES[slices]) - 1) << start
                larger = tuple(sorted((*held, slices), reverse=True))
                if not taken & mask and sum(larger) <= COMPUTE:
                    extend(larger, taken | mask)

    extend((), 0)
    return frozenset(found)


def fits(instances: Sequence[int]) -> bool:
    """Return whether a GPU can hold instances of these compute slices together."""
    return tuple(sorted(instances, reverse=True)) in placeable()


def slowdown(workload: Workload, slices: int, whole: Iteration) -> float:
    """Return the time of an iteration alone in an instance over that on the whole GPU, at least 1.

    Measured on an A100 for the training workloads of MISO; anything else as if the instance were that share of the SMs
    and of the memory's bandwidth.

    Args:
        workload: the workload.
        slices: compute slices of the instance.
        whole: its iteration on the whole GPU.
    """
    known = mig_step_times_s()
    if (workload, slices) in known:
        return max(1.0, known[workload, slices] / known[workload, COMPUTE])
    return max(1.0, inside(whole, slices).time_s(1.0, 1.0) / whole.time_s(1.0, 1.0))


def inside(whole: Iteration, slices: int) -> Iteration:
    """Return an iteration with so many slices of the SMs, and their share of the memory's bandwidth."""
    return replace(whole, share=slices / COMPUTE, memory_s=whole.memory_s * MEMORY / MEMORY_SLICES[slices])


def least(gpu: Gpu, needed_mib: float) -> int | None:
    """Return the compute slices of the smallest instance with so much memory, MiB; None if none has it."""
    return next((slices for slices in SLICES if needed_mib <= memory_mib(gpu, slices)), None)


class MigSharing:
    """The sharing model of MIG instances, `mig-1g` to `mig-7g`: each resident has an instance of its own."""

    def check(self, gpu: Gpu, residents: Sequence[Resident]) -> None:
        """Raise `InputError` unless the GPU has MIG and can hold the residents' instances together."""
        slices = [slices_of(resident) for resident in residents]
        if not (has_mig(gpu) and fits(slices)):
            names = ", ".join(f"{size}g" for size in slices)
            other = f"a GPU with MIG of {COMPUTE} slices; this one has {gpu.mig_slices or 'none'}"
            expected = "instances that fit together" if has_mig(gpu) else other
            raise sharing_error(f"MIG instances {names}", expected, gpu)

    def memory_mib(self, gpu: Gpu, resident: Resident) -> float:
        """Return the memory of the resident's instance, MiB."""
        return memory_mib(gpu, slices_of(resident))

    def iteration_times(self, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        """Return the function that gives each resident's time per iteration at a clock, s."""
        factors = [
            slowdown(resident.workload, slices_of(resident), part)
            for resident, part in zip(residents, parts, strict=True)
        ]

        def times_s(slow: float, stalled: float) -> list[float]:
            return [factor * part.time_s(slow, stalled) for factor, part in zip(factors, parts, strict=True)]

        return times_s


register_sharing_model("mig", MigSharing())

"""MIG: instances of a GPU with SMs and memory of their own; which go together, and how fast they are.

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
_STARTS = MappingProxyType({1: tuple(range(7)), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)})
_ARCHITECTURES = ("ampere", "hopper")

Partition = tuple[int, ...]
"""Compute slices of each instance, descending."""


def has_mig(gpu: Gpu) -> bool:
    """Whether a GPU can be cut into instances."""
    return gpu.architecture in _ARCHITECTURES


def slices_of(sharing: str) -> int | None:
    """The compute slices of a way of sharing such as `mig-3g`; None for one that is not MIG."""
    return int(sharing[4:-1]) if sharing.startswith("mig-") else None


def way(gpu: Gpu, slices: int) -> str:
    """How a task shares a GPU of which it has an instance of so many compute slices; `mps` where there is no MIG."""
    return f"mig-{slices}g" if has_mig(gpu) else "mps"


def memory_mib(gpu: Gpu, slices: int) -> float:
    """Memory of an instance of so many compute slices, MiB."""
    return gpu.memory_mib * MEMORY_SLICES[slices] / MEMORY


@cache
def placeable() -> frozenset[Partition]:
    """Every set of instances that a GPU can hold at once, the empty one included."""
    found: set[Partition] = set()

    def extend(held: Partition, taken: int) -> None:
        found.add(held)
        for slices in MEMORY_SLICES:
            for start in _STARTS[slices]:
                mask = ((1 << MEMORY_SLICES[slices]) - 1) << start
                larger = tuple(sorted((*held, slices), reverse=True))
                if not taken & mask and sum(larger) <= COMPUTE:
                    extend(larger, taken | mask)

    extend((), 0)
    return frozenset(found)


def fits(instances: Sequence[int]) -> bool:
    """Whether instances of these compute slices go onto one GPU together."""
    return tuple(sorted(instances, reverse=True)) in placeable()


@cache
def partitions() -> tuple[Partition, ...]:
    """Partitions to which no further instance can be added, in descending order."""
    everything = placeable()
    full = [
        one
        for one in everything
        if not any(tuple(sorted((*one, more), reverse=True)) in everything for more in MEMORY_SLICES)
    ]
    return tuple(sorted(full, reverse=True))


def slowdown(workload: Workload, slices: int, whole: Iteration) -> float:
    """Time of an iteration alone in an instance over that on the whole GPU, at least 1.

    Measured on an A100 for the training workloads of MISO; anything else as if the instance were that share of the SMs
    and of the memory's bandwidth.

    Args:
        workload: what runs.
        slices: compute slices of the instance.
        whole: its parts on the whole GPU.
    """
    known = mig_step_times_s()
    if (workload, slices) in known:
        return max(1.0, known[workload, slices] / known[workload, COMPUTE])
    return max(1.0, inside(whole, slices).time_s(1.0, 1.0) / whole.time_s(1.0, 1.0))


def inside(whole: Iteration, slices: int) -> Iteration:
    """The parts of an iteration that has so many slices of the SMs, and their share of the memory's bandwidth."""
    return replace(whole, share=slices / COMPUTE, memory_s=whole.memory_s * MEMORY / MEMORY_SLICES[slices])


def least(gpu: Gpu, needed_mib: float) -> int | None:
    """Compute slices of the smallest instance whose memory holds so much, MiB; None if none does."""
    return next((slices for slices in MEMORY_SLICES if needed_mib <= memory_mib(gpu, slices)), None)


def instances(residents: Sequence[Resident]) -> list[int]:
    """Compute slices of the residents that have an instance."""
    return [slices for one in residents if (slices := slices_of(one.sharing)) is not None]


class MigSharing:
    """The sharing model of MIG instances, `mig-1g` to `mig-7g`: each resident has an instance of its own."""

    def check(self, gpu: Gpu, residents: Sequence[Resident]) -> None:
        """Raise `InputError` unless the GPU has MIG and can hold the residents' instances together."""
        wanted = instances(residents)
        if not (has_mig(gpu) and fits(wanted)):
            names = ", ".join(f"{slices}g" for slices in wanted)
            expected = "instances that fit together" if has_mig(gpu) else "a GPU with MIG"
            raise sharing_error(f"MIG instances {names}", expected, gpu)

    def memory_mib(self, gpu: Gpu, resident: Resident) -> float:
        """Return the memory of the resident's instance, MiB."""
        slices = slices_of(resident.sharing)
        return float("inf") if slices is None else memory_mib(gpu, slices)

    def iteration_times(self, residents: Sequence[Resident], parts: Sequence[Iteration]) -> IterationTimes:
        """Return the function that gives each resident's time per iteration at a clock, s."""
        slices = [slices_of(resident.sharing) for resident in residents]
        factors = [
            1.0 if size is None else slowdown(resident.workload, size, part)
            for resident, size, part in zip(residents, slices, parts, strict=True)
        ]

        def times_s(slow: float, stalled: float) -> list[float]:
            return [factor * part.time_s(slow, stalled) for factor, part in zip(factors, parts, strict=True)]

        return times_s


register_sharing_model("mig", MigSharing())

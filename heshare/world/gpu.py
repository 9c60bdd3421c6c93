"""GPUs (Table III): the properties of one type of GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from heshare.shared.errors import InputError, require

_WITHOUT_TF32 = ("kepler", "maxwell", "pascal", "volta", "turing")
ARCHITECTURES = (*_WITHOUT_TF32, "ampere", "ada", "hopper", "blackwell")
"""Architectures of NVIDIA's GPUs."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One type of GPU, as `data/gpus.csv` describes it: Table III and the properties that the device model needs.

    Attributes:
        name: the name used everywhere, such as `T4`, `V100`, `V100-SXM2`, `A100`.
        title: the vendor's name for figures, such as `NVIDIA Tesla T4`.
        architecture: one of `ARCHITECTURES`.
        sm_count: streaming multiprocessors.
        cuda_cores: FP32 lanes of the whole card.
        memory_mib: device memory, MiB.
        mem_bw_gbs: peak memory bandwidth, GB/s.
        l2_mib: L2 cache, MiB.
        fp32_tflops: peak FP32 rate at the top clock, TFLOP/s.
        tdp_w: board power limit, W.
        idle_w: power with a context and nothing running, W.
        clocks_mhz: the SM clocks that can be set, ascending, MHz.
        mps_clients: the largest number of MPS clients.
        fp16_tflops: peak dense FP16 rate at the top clock, sums in FP32, of the tensor cores where there are any,
            TFLOP/s.
        mig_slices: compute slices into which MIG divides it; 0 without MIG.
    """

    name: str
    title: str
    architecture: str
    sm_count: int
    cuda_cores: int
    memory_mib: float
    mem_bw_gbs: float
    l2_mib: float
    fp32_tflops: float
    tdp_w: float
    idle_w: float
    clocks_mhz: tuple[int, ...]
    mps_clients: int = 48
    fp16_tflops: float = 0.0
    mig_slices: int = 0

    def __post_init__(self) -> None:
        good = bool(self.clocks_mhz) and list(self.clocks_mhz) == sorted(set(self.clocks_mhz))
        found = f"{len(self.clocks_mhz)} clocks for {self.name!r}, not strictly ascending"
        expected = "at least one clock, ascending, without repeats"
        require("clocks_mhz", found, good, expected, "Correct the clock grid of this GPU.")

    def __hash__(self) -> int:
        return hash(self.name)  # of all fields it would take most of the time of a look-up

    @property
    def max_mhz(self) -> int:
        """The top SM clock, MHz, at which a card runs unless a clock is set or a power limit is reached."""
        return self.clocks_mhz[-1]

    @property
    def has_tf32(self) -> bool:
        """Whether its tensor cores have TF32."""
        return self.architecture not in _WITHOUT_TF32

    def arithmetic(self, precision: str, kind: str) -> str:
        """Return the arithmetic of a network set to a precision: `fp32`, `tf32` or `fp16`; other names stay.

        `kind` is that of the network. `mixed` computes convolutions in TF32 and matrix products in FP32. A GPU without
        TF32 runs both `mixed` and `tf32` in FP32, as PyTorch does.
        """
        if precision not in ("tf32", "mixed"):
            return precision
        in_tf32 = self.has_tf32 and (precision == "tf32" or kind == "cnn")
        return "tf32" if in_tf32 else "fp32"

    def peak_tflops(self, arithmetic: str) -> float:
        """Return the peak rate in an arithmetic, `fp32`, `tf32`, `fp16` or `int8`, TFLOP/s."""
        if arithmetic == "fp32":
            return self.fp32_tflops
        of_fp16 = {"tf32": 0.5, "fp16": 1.0, "int8": 2.0}[arithmetic]
        return max(of_fp16 * self.fp16_tflops, self.fp32_tflops)

    def check_clock(self, sm_mhz: int) -> int:
        """Return `sm_mhz` if this card offers it; else an `InputError` names the nearest two."""
        if sm_mhz in self.clocks_mhz:
            return sm_mhz
        if not isinstance(sm_mhz, Real):
            raise InputError(repr(sm_mhz), "a clock in MHz", "Write a number.", column="sm_mhz")
        nearest = sorted(self.clocks_mhz, key=lambda clock: abs(clock - sm_mhz))[:2]
        raise InputError(
            f"{sm_mhz} MHz on {self.name}",
            f"a clock of its grid, {self.clocks_mhz[0]} to {self.max_mhz} MHz",
            f"The nearest are {' and '.join(str(clock) for clock in sorted(nearest))} MHz.",
            column="sm_mhz",
        )


def spread_clocks(clocks_mhz: Sequence[int], points: int) -> tuple[int, ...]:
    """Return `points` clocks of a grid, MHz, evenly spread and ascending, the highest one included; at most all."""
    places = np.linspace(len(clocks_mhz) - 1, 0, min(points, len(clocks_mhz)))
    return tuple(sorted({clocks_mhz[round(place)] for place in places}))

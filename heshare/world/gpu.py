"""GPUs (Table III): what a card is, not what it does."""

from __future__ import annotations

from dataclasses import dataclass

from heshare.errors import InputError


@dataclass(frozen=True, slots=True)
class Gpu:
    """One type of GPU, as `data/gpus.csv` describes it (Table III and what the device model needs).

    Attributes:
        name: the name used everywhere, such as `T4`, `V100`, `V100-SXM2`, `A100`.
        title: the vendor's name for figures, such as `NVIDIA Tesla T4`.
        architecture: `turing`, `volta`, `ampere` or `hopper`.
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

    def __post_init__(self) -> None:
        if not self.clocks_mhz or list(self.clocks_mhz) != sorted(set(self.clocks_mhz)):
            raise InputError(
                column="clocks_mhz",
                found=f"{len(self.clocks_mhz)} clocks for {self.name!r}, not strictly ascending",
                expected="at least one clock, ascending, without repeats",
                action="Correct the clock grid of this GPU.",
            )

    @property
    def max_mhz(self) -> int:
        """The top SM clock, MHz: what a card that nobody locked runs at until a power limit stops it."""
        return self.clocks_mhz[-1]

    def check_clock(self, sm_mhz: int) -> int:
        """Return `sm_mhz` if this card offers it.

        Raises:
            InputError: the clock is not on the card's grid; the message names the nearest two.
        """
        if sm_mhz in self.clocks_mhz:
            return sm_mhz
        near = sorted(self.clocks_mhz, key=lambda clock: abs(clock - sm_mhz))[:2]
        raise InputError(
            column="sm_mhz",
            found=f"{sm_mhz} MHz on {self.name}",
            expected=f"a clock of its grid, {self.clocks_mhz[0]} to {self.max_mhz} MHz",
            action=f"The nearest are {' and '.join(str(clock) for clock in sorted(near))} MHz.",
        )

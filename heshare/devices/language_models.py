"""Time and power of a decode step or a prefill of a language model, from its shape, on any GPU of the catalogue.

With the bytes B that an iteration moves and its operations F (`heshare.world.language_model`), on a GPU with the peak
bandwidth W and the peak rate R, an iteration of n sequences takes

    time = step + n sequence + (memory^q + compute^q)^(1/q),   memory = B / (bandwidth W),   compute = F / (compute R)

with q = `iteration_time.OVERLAP`: the longer of the two hides the shorter. `step` and `sequence` are the time of the
server between two steps, in which the GPU waits; the engine `tensorrt` has neither. The energy above that of an idle
GPU with busy clocks is that of the bytes and of the operations.

`heshare.lab.calibration.language_fit` fits the constants to a record of servers on one GPU of one type. Two of its
assumptions cannot be tested with it: that time and energy go with the peak values of other GPUs, and how the time
grows where a process has few SMs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from heshare.devices.constants import Constants, fitted
from heshare.devices.iteration_time import Iteration, arithmetic, overlap
from heshare.devices.uncertainty import Uncertainty
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.language_model import LanguageModel
from heshare.world.workload import Resident

FITTED_ON = "H100"
"""The GPU of the record."""
KERNELS_PER_LAYER = 10.0
"""Kernels that a layer launches; assumed."""
STREAMING_SHARE = 0.5
"""Share of the SMs that can use the whole memory bandwidth; assumed. With fewer, bandwidth goes with the share."""


@dataclass(frozen=True, slots=True)
class LanguageLaw:
    """Constants of the law.

    Attributes:
        step_s: time of the server at each step, s.
        sequence_s: the same for each sequence, s.
        bandwidth: reached bandwidth over the peak.
        compute: reached rate over the peak.
        traffic: energy of a second at the peak bandwidth over that at full dynamic power (`Power.dynamic_w`).
        operations: the same of a second at the peak rate.
        time_spread: relative standard uncertainty of the time of a model that was left out.
        power_spread: that of the board power.
        gpu_spread: that of the time, further, on other GPUs than the record's.
        prefill_spread: that of the time, further, of a prefill without a decode step.
    """

    step_s: float
    sequence_s: float
    bandwidth: float
    compute: float
    traffic: float
    operations: float
    time_spread: float = 0.0
    power_spread: float = 0.0
    gpu_spread: float = 0.0
    prefill_spread: float = 0.0

    def gpu_parts_s(self, gpu: Gpu, moved: float, operations: float, precision: str) -> tuple[float, float]:
        """Return the time of memory and of operations at the top clock with all SMs, s."""
        memory_s = moved / (1e9 * gpu.mem_bw_gbs * self.bandwidth)
        return memory_s, operations / (1e12 * gpu.peak_tflops(precision) * self.compute)

    def server_s(self, sequences: float) -> float:
        """Return the time of the server between two steps, s."""
        return self.step_s + self.sequence_s * sequences

    def energy_s(self, gpu: Gpu, moved: float, operations: float, precision: str) -> tuple[float, float]:
        """Return the energy of bytes and of operations, as times at full dynamic power, s."""
        traffic_s = self.traffic * moved / (1e9 * gpu.mem_bw_gbs)
        return traffic_s, self.operations * operations / (1e12 * gpu.peak_tflops(precision))


@cache
def default_law() -> LanguageLaw:
    """Return the law with the constants of `data/calibration/constants.csv`."""
    return LanguageLaw(**fitted("language model")["", "", ""])


def language_iteration(constants: Constants, gpu_name: str, resident: Resident, shape: LanguageModel) -> Iteration:
    """Return an iteration of a language model on the GPU of that name under the resident's MPS percentage."""
    workload, law, gpu = resident.workload, default_law(), catalogue.gpu(gpu_name)
    size, precision = workload.batch_size, arithmetic(gpu_name, workload)
    moved, operations = shape.moved_bytes(size, precision), shape.operations(size)
    share = resident.mps_pct / 100.0

    memory_s, compute_s = law.gpu_parts_s(gpu, moved, operations, precision)
    memory_s *= max(1.0, STREAMING_SHARE / share)
    gpu_s = float(overlap(memory_s, compute_s / share))
    traffic_s, operations_s = law.energy_s(gpu, moved, operations, precision)

    server_s = law.server_s(size) if workload.engine == "eager" else 0.0
    time, power = _uncertainties(law, constants, gpu_name, server_s / (server_s + gpu_s), prefill=shape.prefill)
    beside = constants.spreads.of("slowdown", "", "mps").total
    return Iteration(
        fixed_s=0.0,
        memory_s=memory_s,
        batch_s=(gpu_s - memory_s) * share,  # what the operations add is the time of the SMs
        fill_s=0.0,
        share=share,
        host_s=0.0,
        batch_size=size,
        serial_s=server_s,
        bandwidth_s=memory_s if share >= STREAMING_SHARE else memory_s * share / STREAMING_SHARE,
        intensity=0.0,
        extra_s=operations_s + traffic_s,
        kernels=KERNELS_PER_LAYER * shape.layers,
        arithmetic=precision,
        time=(time, time.beside(beside, beside)),
        power=(power, power),
    )


def _uncertainties(
    law: LanguageLaw, constants: Constants, gpu: str, server: float, *, prefill: bool
) -> tuple[Uncertainty, Uncertainty]:
    # Of time and power. `server` is the server's part of the time, which differs between hosts; on other GPUs the time
    # is less certain by an assumed spread, the power by that of inference without rows on that GPU.
    alone = law.prefill_spread if prefill else 0.0
    elsewhere = 0.0 if gpu == FITTED_ON else law.gpu_spread
    host = constants.spreads.of("host").total * server
    within = math.hypot(law.time_spread, alone, elsewhere)
    power = law.power_spread
    if gpu != FITTED_ON:
        power = max(power, constants.spreads.of("power", "none", "alone").total)
    return Uncertainty(math.hypot(within, host), within), Uncertainty(power, power)

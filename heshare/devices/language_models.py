"""Time and power of a decode step or a prefill of a language model, from its shape, on any GPU of the catalogue.

On a GPU with the peak bandwidth W, the peak rate R and the top clock f, with a share s of the SMs, an iteration of n
sequences takes

    time     = step + n sequence + hypot(launches + weights, compute) + cache
    weights  = bytes of weights / (bandwidth W r(s))
    cache    = bytes of keys, values and recurrent states / (bandwidth W r(s))
    compute  = operations / (rate R s)
    launches = (layers + layers with attention) launch_cycles / f
    r(s)     = tanh(s / streaming) / tanh(1 / streaming)

`step` and `sequence` are the time of the server between two steps, in which the GPU waits; the engine `tensorrt` has
neither. Kernels stream at `bandwidth`, but each begins and ends, so that with the launches the weights of a model of 7
to 8 billion parameters move at 0.63 to 0.66 of the peak. r(s) is the part of the bandwidth that a share of the SMs
reaches. The energy above that of an idle GPU with busy clocks is

    energy   = (limit - idle) (weight_energy bytes of weights / W + cache_energy bytes of cache / W
                               + tile_energy tile operations / R)

with at least `TILE` rows for each matrix that is read, since tensor cores work on tiles. So a mixture of experts, whose
experts get few tokens each, draws more as more of them are read. As the energy of a byte is relative to the room
between the idle power and the limit of a card, every card has a clock within its limit.

`heshare.lab.calibration.language_fit` fits the constants to two records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from heshare.devices.constants import Constants, fitted
from heshare.devices.iteration_time import BATCH_EXPONENT, Iteration, arithmetic
from heshare.devices.uncertainty import Uncertainty
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.language_model import LanguageModel
from heshare.world.workload import Resident

FITTED_ON = "H100"
"""The GPU of the record with power."""
TIMED_ON = (FITTED_ON, "A100")
"""The GPUs of the records with times."""
TILE = 32.0
"""Rows of a tile of a matrix product; chosen from 8, 16, 32 and 64 by the power of models left out of the fit."""
KERNELS_PER_LAYER = 10.0
"""Kernels that a layer launches; assumed."""
_HOPPER = ("hopper", "blackwell")


@dataclass(frozen=True, slots=True)
class Work:
    """What one iteration does; numbers, or arrays of several iterations.

    Attributes:
        weights: weights that it reads, bytes.
        cache: keys, values and recurrent states that it moves, bytes.
        operations: operations of its tokens.
        tile_operations: operations of all rows of the tiles that it computes.
        parts: layers, and again those with attention.
    """

    weights: Any
    cache: Any
    operations: Any
    tile_operations: Any
    parts: Any

    @classmethod
    def of(cls, shape: LanguageModel, batch_size: float, precision: str, *, prompt_tokens: float = 0.0) -> Work:
        """Return the work of an iteration; `prompt_tokens` of other sequences are processed with it."""
        tokens = shape.tokens(batch_size) + prompt_tokens
        weights = shape.moved_bytes(0.0, precision, prompt_tokens=tokens)
        moved = shape.moved_bytes(batch_size, precision, prompt_tokens=prompt_tokens)
        operations = shape.operations(batch_size, prompt_tokens=prompt_tokens)

        # Every token takes the parameters outside the experts, and some of those in the experts that are read.
        per_token, outside = 0.5 * shape.operations(0.0, prompt_tokens=1.0), shape.read_params(0.0)
        in_experts = shape.read_params(tokens) - outside
        tile = 1.0 if precision == "fp32" else TILE
        rows = max(tile, tokens) * outside + max(tile * in_experts, tokens * (per_token - outside))
        attention = operations - shape.operations(0.0, prompt_tokens=tokens)

        parts = shape.layers + shape.full_layers + shape.window_layers
        return cls(weights, moved - weights, operations, attention + 2.0 * rows, parts)


@dataclass(frozen=True, slots=True)
class LanguageLaw:
    """Constants of the law.

    Attributes:
        step_s: time of the server at each step, s.
        sequence_s: the same for each sequence, s.
        bandwidth: bandwidth of a kernel that streams over the peak.
        launch_cycles: SM cycles in which the kernels of a layer, or of its attention, begin and end.
        rate: rate of matrix products over the peak.
        streaming: share of the SMs that sets how soon r(s) is near 1.
        streaming_hopper: the same on Hopper and later.
        weight_energy: energy of a second of weights at the peak bandwidth, over that of the room between the idle power
            and the limit of a GPU.
        cache_energy: the same of keys, values and states.
        tile_energy: the same of a second of tile operations at the peak rate.
        time_spread: relative standard uncertainty of the time of a model that was left out.
        power_spread: that of the board power.
        gpu_spread: that of the time, further, on other GPUs than the records'.
        prefill_spread: that of the time, further, of a prefill without a decode step.
    """

    step_s: float
    sequence_s: float
    bandwidth: float
    launch_cycles: float
    rate: float
    streaming: float
    streaming_hopper: float
    weight_energy: float = 0.0
    cache_energy: float = 0.0
    tile_energy: float = 0.0
    time_spread: float = 0.0
    power_spread: float = 0.0
    gpu_spread: float = 0.0
    prefill_spread: float = 0.0

    def server_s(self, sequences: Any) -> Any:
        """Return the time of the server between two steps, s; of a number or an array."""
        return self.step_s + self.sequence_s * sequences

    def reached(self, gpu: Gpu, share: Any) -> Any:
        """Return r(s), the part of the bandwidth that a share of the SMs (0 to 1) reaches; of a number or an array."""
        streaming = self.streaming_hopper if gpu.architecture in _HOPPER else self.streaming
        return np.tanh(share / streaming) / math.tanh(1.0 / streaming)

    def memory_s(self, gpu: Gpu, moved: Any) -> Any:
        """Return the time of bytes that all SMs stream, s; of a number or an array."""
        return moved / (1e9 * gpu.mem_bw_gbs * self.bandwidth)

    def launches_s(self, gpu: Gpu, work: Work) -> Any:
        """Return the time in which kernels begin and end at the top clock, s."""
        return self.launch_cycles * work.parts / (1e6 * gpu.max_mhz)

    def gpu_s(self, gpu: Gpu, work: Work, precision: str, share: Any) -> Any:
        """Return the time of work on a GPU at the top clock with a share of its SMs (0 to 1), s."""
        reached = self.reached(gpu, share)
        weights_s, cache_s = (self.memory_s(gpu, moved) / reached for moved in (work.weights, work.cache))
        compute_s = work.operations / (1e12 * gpu.peak_tflops(precision) * self.rate * share)
        return np.hypot(self.launches_s(gpu, work) + weights_s, compute_s) + cache_s

    def energy_j(self, gpu: Gpu, work: Work, precision: str) -> Any:
        """Return the energy of bytes and operations at the top clock, J."""
        bandwidth, rate = 1e9 * gpu.mem_bw_gbs, 1e12 * gpu.peak_tflops(precision)
        traffic_s = (self.weight_energy * work.weights + self.cache_energy * work.cache) / bandwidth
        return (gpu.tdp_w - gpu.idle_w) * (traffic_s + self.tile_energy * work.tile_operations / rate)


@cache
def default_law() -> LanguageLaw:
    """Return the law with the constants of `data/calibration/constants.csv`."""
    return LanguageLaw(**fitted("language model")["", "", ""])


def language_iteration(constants: Constants, gpu_name: str, resident: Resident, shape: LanguageModel) -> Iteration:
    """Return an iteration of a language model on the GPU of that name under the resident's MPS percentage."""
    workload, law, gpu = resident.workload, default_law(), catalogue.gpu(gpu_name)
    size, precision = workload.batch_size, arithmetic(gpu_name, workload)
    share, work = resident.mps_pct / 100.0, Work.of(shape, size, precision)

    streamed_s = law.memory_s(gpu, work.weights + work.cache)
    memory_s = streamed_s / float(law.reached(gpu, share))
    gpu_s = float(law.gpu_s(gpu, work, precision, share))

    # Beside memory the SMs need the launches, whatever the share, and what the operations add.
    launches_s, sms_s = law.launches_s(gpu, work), gpu_s - memory_s
    added_s = max(0.0, sms_s**BATCH_EXPONENT - launches_s**BATCH_EXPONENT) ** (1.0 / BATCH_EXPONENT)

    server_s = law.server_s(size) if workload.engine == "eager" else 0.0
    time, power = _uncertainties(law, constants, gpu_name, server_s / (server_s + gpu_s), prefill=shape.prefill)
    beside = constants.spreads.of("slowdown", "", "mps").total
    return Iteration(
        fixed_s=0.0,
        memory_s=memory_s,
        batch_s=added_s * share,
        fill_s=launches_s,
        share=share,
        host_s=0.0,
        batch_size=size,
        serial_s=server_s,
        bandwidth_s=streamed_s,
        intensity=0.0,
        extra_s=law.energy_j(gpu, work, precision) / constants.power[gpu_name].dynamic_w,
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
    elsewhere = 0.0 if gpu in TIMED_ON else law.gpu_spread
    host = constants.spreads.of("host").total * server
    within = math.hypot(law.time_spread, alone, elsewhere)
    power = law.power_spread
    if gpu != FITTED_ON:
        power = max(power, constants.spreads.of("power", "none", "alone").total)
    return Uncertainty(math.hypot(within, host), within), Uncertainty(power, power)

"""Laws from which the constants of GPUs and networks without measurements follow, by their features."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

from heshare.world.gpu import Gpu
from heshare.world.workload import Model


@dataclass(frozen=True, slots=True)
class SpeedLaw:
    """How the speed of a busy GPU goes with its features, for one kind of network in one precision.

    The speed is in proportion to `peak rate ^ rate x bandwidth ^ bandwidth`; a GPU's power limit is in it.

    Attributes:
        rate: exponent of the peak rate (`Gpu.peak_tflops`).
        bandwidth: exponent of the peak memory bandwidth.
        uncertainty: relative standard uncertainty of the speed of a GPU that was left out of the fit.
    """

    rate: float
    bandwidth: float
    uncertainty: float

    def log_speed(self, card: Gpu, precision: str) -> float:
        """Return the logarithm of a GPU's speed, up to a constant."""
        return self.rate * log(card.peak_tflops(precision)) + self.bandwidth * log(card.mem_bw_gbs)


@dataclass(frozen=True, slots=True)
class CardSpeed:
    """Speed of one GPU that some record speaks of, for one kind of network in one precision.

    Attributes:
        offset: logarithm of its speed over that of the law.
        uncertainty: relative standard uncertainty of its speed over that of the GPU whose cells it takes.
    """

    offset: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """Power constants of a GPU without measurements of power, over its features.

    Attributes:
        dynamic: `Power.dynamic_w` over the power limit less the idle power.
        knee: `Power.knee_mhz` over the top clock.
        memory_knee: `Power.memory_knee_mhz` over the top clock.
        v_min, memory, sharing: as in `Power`.
        parked: `Power.parked_w` over the idle power.
        uncertainty: relative standard uncertainty of the dynamic power of a GPU that was left out.
    """

    dynamic: float
    knee: float
    memory_knee: float
    v_min: float
    memory: float
    sharing: float
    parked: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class WorkloadLaw:
    """How the time of a sample goes with a network's features.

    The time is in proportion to `operations ^ gflops x activations ^ activations x layers ^ layers`.

    Attributes:
        gflops, activations, layers: exponents.
        uncertainty: relative standard uncertainty of a network that was left out of the fit.
    """

    gflops: float
    activations: float
    layers: float
    uncertainty: float

    def log_size(self, model: Model) -> float:
        """Return the logarithm of the time of a sample, up to a constant."""
        logs = log(model.gflops), log(model.activations_m), log(model.layers)
        return self.gflops * logs[0] + self.activations * logs[1] + self.layers * logs[2]


@dataclass(frozen=True, slots=True)
class Laws:
    """All laws.

    Attributes:
        speed: of GPUs, by (kind of network, precision).
        cards: speed of the GPUs that a record speaks of, by (gpu, kind of network, precision).
        power: of GPUs.
        workload: of networks.
    """

    speed: Mapping[tuple[str, str], SpeedLaw] = field(default_factory=dict)
    cards: Mapping[tuple[str, str, str], CardSpeed] = field(default_factory=dict)
    power: PowerLaw | None = None
    workload: WorkloadLaw | None = None

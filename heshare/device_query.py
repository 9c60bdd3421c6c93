"""Estimate of the device model for residents in the notation `resnet50:16@50`: `heshare.estimate`."""

from collections.abc import Sequence

import heshare.systems.device_models  # noqa: F401 (registers training and the other ways of sharing)
from heshare.devices.device_model import Estimate, co_run
from heshare.world import catalogue


def estimate(
    gpu_name: str,
    residents: Sequence[str],
    sm_mhz: int | None = None,
    precision: str = "fp32",
    engine: str = "eager",
    *,
    power_cap_w: float | None = None,
) -> Estimate:
    """Return times, power and clock of workloads that share a GPU.

    Args:
        gpu_name: a GPU of the catalogue, such as `V100`.
        residents: workloads such as `resnet50:16@50` (model, inference batch size, MPS percentage); with another way of
            sharing, the same for all of them, `resnet50:16@time-slice` or `eaco_vgg16-train:32@time-slice`.
        sm_mhz: SM clock, MHz; None leaves the clock to the card.
        precision: `fp32`, `tf32` or `fp16`.
        engine: `eager` or `tensorrt` (no host floor).
        power_cap_w: power limit, W; None is the card's own.

    Raises:
        InputError: an unknown GPU, workload, precision or engine, or a clock that the GPU does not offer.
    """
    parsed = [catalogue.resident(text, precision=precision, engine=engine) for text in residents]
    return co_run(catalogue.gpu(gpu_name), parsed, sm_mhz, power_cap_w=power_cap_w)

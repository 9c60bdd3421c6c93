"""`heshare.estimate`: times, power and clock of residents in the notation `resnet50:16@50`, by the device model."""

from collections.abc import Sequence

from heshare.devices.device_model import Estimate, co_run, sharing_model
from heshare.shared.errors import InputError, require
from heshare.world import catalogue
from heshare.world.gpu import Gpu
from heshare.world.workload import DEFAULT_PRECISION, Resident, Workload

LIVE = 0.1
"""Smallest part of the layer outputs of a sample that is in memory at the same time.

BERT Large at 256 samples ran twice in an eighth of an 80 GB GPU (MunQ-Lee/ParvaGPU_SC24). `catalogue.memory_mib`, with
all layer outputs, is an upper bound.
"""


def estimate(
    gpu_name: str,
    residents: Sequence[str] | str,
    sm_mhz: int | None = None,
    precision: str = DEFAULT_PRECISION,
    engine: str = "eager",
    *,
    power_cap_w: float | None = None,
) -> Estimate:
    """Return times, power and clock of workloads that share a GPU.

    Args:
        gpu_name: a GPU of the catalogue, such as `V100`.
        residents: one or more workloads such as `resnet50:16@50` (model, inference batch size, MPS percentage); with
            another way of sharing, the same for all, `resnet50:16@time-slice` or `eaco_vgg16-train:32@time-slice`.
        sm_mhz: SM clock, MHz; None leaves the clock to the GPU.
        precision: one of `heshare.world.workload.PRECISIONS`.
        engine: `eager` or `tensorrt` (no host floor).
        power_cap_w: power limit, W; None is the GPU's default.

    Every answer has a relative standard uncertainty for each time (`TaskEstimate.uncertainty_parts`) and for the power
    (`Estimate.power_uncertainty_parts`); the 90 % interval of x is `parts.interval(x)`.

    Raises:
        InputError: no resident, an unknown GPU, workload, precision or engine, a clock that the GPU does not offer,
            more memory than it has, or more MPS clients.

    Example:
        >>> import heshare as hs
        >>> answer = hs.estimate("V100", ["resnet50:16@50", "vgg19:8@50"])
        >>> f"{answer.sm_mhz:.0f} MHz, {answer.power_w:.0f} W"
        '1257 MHz, 250 W'
        >>> [f"{1e3 * task.time_s:.1f} ms" for task in answer.tasks]
        ['34.8 ms', '47.1 ms']
    """
    gpu = catalogue.gpu(gpu_name)
    texts = [residents] if isinstance(residents, str) else residents
    good = isinstance(texts, Sequence) and len(texts) > 0
    action = "Name what runs on the GPU."
    require("residents", repr(residents), good, "workloads such as ['resnet50:16@50']", action)
    parsed = [catalogue.resident(text, precision=precision, engine=engine) for text in texts]
    _check_fit(gpu, parsed)
    return co_run(gpu, parsed, sm_mhz, power_cap_w=power_cap_w)


def least_memory_mib(workload: Workload) -> float:
    """Return the least device memory to run the workload, MiB; for training and language models all of it."""
    needed_mib = catalogue.memory_mib(workload)
    if workload.phase == "training" or catalogue.shape(workload.model) is not None:
        return needed_mib
    fixed_mib = catalogue.model(workload.model).memory_fixed_mib
    return fixed_mib + LIVE * (needed_mib - fixed_mib)


def _check_fit(gpu: Gpu, residents: Sequence[Resident]) -> None:
    """Raise `InputError` if the GPU or an instance of it cannot hold the residents, or MPS cannot serve as many."""
    if len(residents) > gpu.mps_clients:
        action = "Ask for fewer."
        raise InputError(f"{len(residents)} residents on {gpu.name}", f"at most {gpu.mps_clients}", action)
    needed_mib = [least_memory_mib(resident.workload) for resident in residents]
    sharing = sharing_model(gpu, residents)
    own_mib = [gpu.memory_mib if sharing is None else sharing.memory_mib(gpu, resident) for resident in residents]
    for resident, needed, available in zip(residents, needed_mib, own_mib, strict=True):
        if needed > min(available, gpu.memory_mib):
            raise _too_large(str(resident), needed, min(available, gpu.memory_mib), gpu)
    if sum(needed_mib) > gpu.memory_mib:
        raise _too_large(f"{len(residents)} residents", sum(needed_mib), gpu.memory_mib, gpu)


def _too_large(what: str, needed_mib: float, available_mib: float, gpu: Gpu) -> InputError:
    found = f"{what} on {gpu.name}, which needs {needed_mib:.0f} MiB of memory or more"
    action = "Choose a smaller batch size, fewer residents or a larger GPU."
    return InputError(found, f"at most {available_mib:.0f} MiB", action, column="residents")

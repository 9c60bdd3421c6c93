"""Basis of an estimate whose network has no rows on its GPU, in one line."""

from functools import lru_cache

from heshare.devices.constants import Constants
from heshare.devices.iteration_time import OVERLAP, Iteration
from heshare.devices.timing_effects import Effects
from heshare.world.gpu import Gpu
from heshare.world.workload import Resident

HIGH = 0.5
"""Part of the peak rate above which an estimate says so: few measured networks are there."""


def basis_of(
    constants: Constants, gpu: Gpu, resident: Resident, iteration: Iteration, time_s: float, sm_slowdown: float
) -> str:
    """Return what an estimate leans on; empty where rows of the network on the GPU went into the fit.

    Args:
        constants: the constants of the estimate.
        gpu: its GPU.
        resident: the resident.
        iteration: its iteration.
        time_s: its estimated time, s.
        sm_slowdown: top clock over the clock reached.
    """
    if iteration.anchored:
        return ""
    said = [_missing_rows(constants, gpu, resident, iteration)]
    if _is_bound_by_host(iteration, time_s):
        said.append("bound by its host")
    rate = _part_of_peak(constants, gpu, resident, iteration, time_s) * sm_slowdown
    if rate > HIGH:
        said.append(f"{100.0 * rate:.0f} % of the peak rate")
    return "; ".join(said)


def _missing_rows(constants: Constants, gpu: Gpu, resident: Resident, iteration: Iteration) -> str:
    name, model = resident.workload.model, constants.timing.models.get(resident.workload.model)
    if model is None or resident.workload.phase != "inference":
        return f"no row of {resident.workload} on {gpu.name}"
    if model.language is not None:
        return "the law of language models"

    gpus, networks = _with_rows(constants.timing.effects)
    text = f"no row of {name} on {f'{gpu.name} in {iteration.arithmetic}' if name in networks else 'any GPU'}"
    return text if gpu.name in gpus else f"{text}, no row of any network on {gpu.name}"


@lru_cache(maxsize=16)
def _with_rows(effects: Effects) -> tuple[set[str], set[str]]:
    return {gpu for gpu, *_ in effects.rows}, {network for *_, network in effects.rows}


def _is_bound_by_host(iteration: Iteration, time_s: float) -> bool:
    # Where host and GPU part are equal, they take the host part times 2^(1/q).
    overlapped_s = time_s - iteration.serial_s
    return iteration.host_s * 2.0 ** (1.0 / OVERLAP) > overlapped_s or iteration.serial_s > 0.5 * time_s


def _part_of_peak(constants: Constants, gpu: Gpu, resident: Resident, iteration: Iteration, time_s: float) -> float:
    # Of the SMs of its share at the top clock; 0 where the operations are not known.
    model = constants.timing.models.get(resident.workload.model)
    if model is None or resident.workload.phase != "inference":
        return 0.0
    peak_gflops = 1e3 * gpu.peak_tflops(iteration.arithmetic) * iteration.share
    return model.gflops * iteration.batch_size / (time_s * peak_gflops)

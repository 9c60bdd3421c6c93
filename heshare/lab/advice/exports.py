"""An option of `heshare.advise` as commands for MPS, a Slurm `--gres`, and YAML for Kubernetes (HAMi, DRA).

Names of fields are those of Slurm's gres (`mps`, `shard`, 100 a card), of HAMi (`nvidia.com/gpumem` in MiB,
`nvidia.com/gpucores` in %), and of `resource.k8s.io/v1` with the driver `gpu.nvidia.com` (`GpuConfig` of
`resource.nvidia.com/v1beta1`). Programs and images are placeholders, in capitals.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import yaml

from heshare.lab.advice.options import ALONE, MIG, MPS, Option
from heshare.lab.systems.miso.mig import MEMORY, MEMORY_SLICES, memory_mib, slices_of
from heshare.shared.errors import unknown
from heshare.world.gpu import Gpu

TARGETS = ("mps", "slurm", "hami", "dra")
_PCT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_DRIVER, _CLAIM = "gpu.nvidia.com", "heshare-gpu"


def export(target: str, gpu: Gpu, option: Option, names: Sequence[str], needs_mib: Sequence[float]) -> str:
    """Return an option as a text for `target`, one of `TARGETS`; `names` and `needs_mib` are of the workloads."""
    if target not in TARGETS:
        raise unknown(target, TARGETS, column="export")
    labels = [f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{at}" for at, name in enumerate(names)]
    if target in ("mps", "slurm"):
        return "\n".join(_commands(gpu, option, labels) if target == "mps" else _gres(gpu, option, names)) + "\n"
    clock = "" if option.sm_mhz is None else f"# On the node: nvidia-smi -i 0 -lgc {option.sm_mhz},{option.sm_mhz}\n"
    documents = _hami(gpu, option, labels, needs_mib) if target == "hami" else _dra(gpu, option, labels)
    text: str = yaml.safe_dump_all(documents, sort_keys=False)
    return f"# {option} on {gpu.name}, by heshare advise; replace IMAGE.\n{clock}{text}"


def profile(gpu: Gpu, slices: int) -> str:
    """Return the name of a MIG instance of a card, such as `3g.40gb`."""
    return f"{slices}g.{math.floor(math.ceil(gpu.memory_mib / 1024) * MEMORY_SLICES[slices] / MEMORY + 0.5)}gb"


def _profiles(gpu: Gpu, option: Option) -> list[str]:
    return [profile(gpu, slices_of(resident)) for resident in option.way.residents]


def _commands(gpu: Gpu, option: Option, labels: Sequence[str]) -> list[str]:
    way, clock = option.way, [] if option.sm_mhz is None else [f"nvidia-smi -i 0 -lgc {option.sm_mhz},{option.sm_mhz}"]
    before, set_each, after = ["export CUDA_VISIBLE_DEVICES=0"], [""] * len(labels), ["wait"] * (way.name != ALONE)
    if way.name == MPS:
        before.append("export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps CUDA_MPS_LOG_DIRECTORY=/tmp/nvidia-log")
        before.append("nvidia-cuda-mps-control -d")
        set_each, after = [f"{_PCT}={pct} " for pct in way.shares], ["wait", "echo quit | nvidia-cuda-mps-control"]
    elif way.name == MIG:
        before = [f"nvidia-smi -i 0 -mig 1 && nvidia-smi mig -i 0 -cgi {','.join(_profiles(gpu, option))} -C"]
        set_each = [f"CUDA_VISIBLE_DEVICES=MIG-UUID-{at} " for at in range(len(labels))]
    programs = [f"{own}PROGRAM-{label}{' &' * bool(after)}" for own, label in zip(set_each, labels, strict=True)]
    return [*before, *clock, *programs, *after, *["nvidia-smi -i 0 -rgc"][: len(clock)]]


def _gres(gpu: Gpu, option: Option, names: Sequence[str]) -> list[str]:
    # Slurm gives at most 100 of a card's mps or shards: where percentages sum to more, shards are proportional.
    way, pcts = option.way, [resident.mps_pct for resident in option.way.residents]
    asked = [f"shard:{100 * pct // sum(pcts)}" for pct in pcts]
    if way.name == ALONE:
        asked = ["gpu:1"] * len(names)
    elif way.name == MIG:
        asked = [f"gpu:{name}:1" for name in _profiles(gpu, option)]
    elif way.name == MPS:
        own = [f"{shards} --export=ALL,{_PCT}={pct}" for shards, pct in zip(asked, pcts, strict=True)]
        asked = [f"mps:{pct}" for pct in pcts] if sum(pcts) <= 100 else own
    clock = "" if option.sm_mhz is None else f" --gpu-freq={option.sm_mhz}"
    return [f"#SBATCH --gres={each}{clock}  # {name}" for each, name in zip(asked, names, strict=True)]


def _pod(option: Option, at: int, label: str, resources: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "IMAGE", "resources": resources}
    if option.way.name == MPS:
        container["env"] = [{"name": _PCT, "value": option.way.shares[at]}]
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": label}, "spec": spec}


def _hami(gpu: Gpu, option: Option, labels: Sequence[str], needs_mib: Sequence[float]) -> list[dict[str, Any]]:
    # Without gpucores a container may use all of a shared card; 100 requests a whole one. A shared card's memory is
    # divided as the least needs are.
    way, pods = option.way, []
    parts = needs_mib if all(needs_mib) else [1.0] * len(labels)
    for at, (label, resident) in enumerate(zip(labels, way.residents, strict=True)):
        mib = memory_mib(gpu, slices_of(resident)) if way.name == MIG else gpu.memory_mib * parts[at] / sum(parts)
        limits = {"nvidia.com/gpu": 1} | ({"nvidia.com/gpumem": int(mib)} if way.name != ALONE else {})
        if way.name == ALONE or (way.name == MPS and sum(one.mps_pct for one in way.residents) <= 100):
            limits["nvidia.com/gpucores"] = resident.mps_pct
        pod = _pod(option, at, label, {"limits": limits})
        mode = way.name if way.name in (MPS, MIG) else "hami-core"
        own = {"hami.io/gpu-scheduler-policy": "binpack", "nvidia.com/vgpu-mode": mode}
        pods.append(pod if way.name == ALONE else {**pod, "metadata": {"name": label, "annotations": own}})
    return pods


def _dra(gpu: Gpu, option: Option, labels: Sequence[str]) -> list[dict[str, Any]]:
    # One claim that all pods share; the claim's percentage is the default, and that of a container can only lower it.
    way = option.way
    devices: dict[str, Any] = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": _DRIVER}}]}
    if way.name == MIG:
        cel = [f'device.attributes["{_DRIVER}"].profile == "{name}"' for name in _profiles(gpu, option)]
        kinds = [{"deviceClassName": "mig.nvidia.com", "selectors": [{"cel": {"expression": one}}]} for one in cel]
        devices = {"requests": [{"name": f"mig-{at}", "exactly": kind} for at, kind in enumerate(kinds)]}
        devices["constraints"] = [{"requests": [], "matchAttribute": f"{_DRIVER}/parentUUID"}]
    elif way.name != ALONE:
        most = max(resident.mps_pct for resident in way.residents)
        mps = {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": most}}
        slices = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}
        parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
        opaque = {"driver": _DRIVER, "parameters": {**parameters, "sharing": mps if way.name == MPS else slices}}
        devices["config"] = [{"requests": ["gpu"], "opaque": opaque}]
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": _CLAIM}}
    documents = [{**claim, "spec": {"devices": devices}}]
    for at, label in enumerate(labels):
        request = {"request": f"mig-{at}"} if way.name == MIG else {}
        pod = _pod(option, at, label, {"claims": [{"name": "gpu"} | request]})
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": _CLAIM}]
        documents.append(pod)
    return documents

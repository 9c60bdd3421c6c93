"""An option of `heshare.advise` as shell commands for MPS, and as a Slurm `--gres` for each job.

Slurm counts `mps` and `shard` as 100 a card. Programs are placeholders, in capitals.
"""

import math
import re
from collections.abc import Sequence

from heshare.lab.advice.options import ALONE, MIG, MPS, Option
from heshare.lab.systems.miso.mig import MEMORY, MEMORY_SLICES, slices_of
from heshare.shared.errors import unknown
from heshare.world.gpu import Gpu

TARGETS = ("mps", "slurm")
_PCT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def export(target: str, gpu: Gpu, option: Option, names: Sequence[str]) -> str:
    """Return an option as a text for `target`, one of `TARGETS`; `names` are of its workloads."""
    if target not in TARGETS:
        raise unknown(target, TARGETS, column="export")
    lines = _commands(gpu, option, names) if target == "mps" else _gres(gpu, option, names)
    return "\n".join(lines) + "\n"


def profile(gpu: Gpu, slices: int) -> str:
    """Return the name of a MIG instance of a card, such as `3g.40gb`."""
    return f"{slices}g.{math.floor(math.ceil(gpu.memory_mib / 1024) * MEMORY_SLICES[slices] / MEMORY + 0.5)}gb"


def _profiles(gpu: Gpu, option: Option) -> list[str]:
    return [profile(gpu, slices_of(resident)) for resident in option.way.residents]


def _commands(gpu: Gpu, option: Option, names: Sequence[str]) -> list[str]:
    labels = [f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}-{at}" for at, name in enumerate(names)]
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
    # Percentages that sum to more than 100 are no `mps`: shards in proportion, and the percentage in the environment.
    way, pcts = option.way, [resident.mps_pct for resident in option.way.residents]
    shards = [f"shard:{100 * pct // sum(pcts)}" for pct in pcts]
    asked = {
        ALONE: ["gpu:1"] * len(names),
        MIG: [f"gpu:{each}:1" for each in (_profiles(gpu, option) if way.name == MIG else [])],
        MPS: [f"mps:{pct}" for pct in pcts],
    }.get(way.name, shards)
    if way.name == MPS and sum(pcts) > 100:
        asked = [f"{own} --export=ALL,{_PCT}={pct}" for own, pct in zip(shards, pcts, strict=True)]
    clock = "" if option.sm_mhz is None else f" --gpu-freq={option.sm_mhz}"
    return [f"#SBATCH --gres={each}{clock}  # {name}" for each, name in zip(asked, names, strict=True)]

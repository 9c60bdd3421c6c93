"""All cells of the device model: 6 GPUs x 2 engines x 15 workloads, anchored where there are measurements."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from heshare.devices.calibration import cells
from heshare.devices.calibration.cells import Cell
from heshare.devices.calibration.data import IMAGE_MODELS, table
from heshare.devices.calibration.times import Fitted
from heshare.devices.constants import Power
from heshare.world import catalogue

TRANSFORMER_ENGINE = 1.19
"""Eager over fused time of a Transformer layer: BERT base, 512 tokens, V100, TorchScript over ONNX Runtime."""

_HOST_GPT2_S = 5.5e-3
_FORM = 0.06
_FAR = 0.35


def every(power: Mapping[str, Power], mps: Mapping[str, Fitted], eager: Mapping[str, Fitted]) -> dict[Cell, Fitted]:
    """Every cell, auxiliary calibration workloads included."""
    found: dict[Cell, Fitted] = {("V100-SXM2", "tensorrt", name): cell for name, cell in mps.items()}
    hosts = host_times(eager)
    found |= {("A100", "eager", name): cell for name, cell in eager.items()}
    _images(found, power, mps, hosts)
    _a100_images(found, eager, hosts)
    _language(found, power)
    _hopper(found)
    return {cell: kernels(cell[2], fitted) for cell, fitted in found.items()}


def host_times(eager: Mapping[str, Fitted]) -> dict[str, float]:
    """Host time of each image workload, s: fitted on the A100, else from a slower host, else by its layers."""
    known = {name: cell.timing.host_s for name, cell in eager.items()}
    slower = set(table("times").query("framework == 'PyTorch, slower host'").workload)
    bound = [name for name in sorted(slower & set(known)) if name.startswith(("resnet", "densenet"))]
    pace = statistics.median(cells.slow_host(name) / known[name] for name in bound)
    layer = statistics.median(known[name] / catalogue.model(name).layers for name in bound)
    for name in IMAGE_MODELS:
        if name not in known:
            known[name] = cells.slow_host(name) / pace if name in slower else layer * catalogue.model(name).layers
    return known


def _images(
    found: dict[Cell, Fitted], power: Mapping[str, Power], mps: Mapping[str, Fitted], hosts: Mapping[str, float]
) -> None:
    clock = catalogue.gpu("V100").max_mhz / catalogue.gpu("V100-SXM2").max_mhz
    for name in IMAGE_MODELS:
        for gpu in ("T4", "V100"):
            found[gpu, "tensorrt", name] = cells.fused_cell(gpu, name, power, mps)
        if name not in mps:
            source = "the V100 cell, SM times in proportion to the clock"
            found["V100-SXM2", "tensorrt", name] = cells.moved(
                found["V100", "tensorrt", name], source, _FORM, work=clock, memory=1.0
            )
        for gpu in ("T4", "V100", "V100-SXM2"):
            fused = found[gpu, "tensorrt", name]
            found[gpu, "eager", name] = cells.eager_from_fused(fused, gpu, name, hosts[name])
    for gpu in ("T4", "V100-SXM2"):
        like = found[gpu, "tensorrt", "resnet50"].timing
        found[gpu, "eager", "resnet50"] = cells.eager_resnet50(gpu, power, like, hosts["resnet50"])
    found["V100", "eager", "resnet50"] = cells.moved(
        found["V100-SXM2", "eager", "resnet50"],
        "the V100-SXM2 cell, SM times in proportion to the clock",
        _FORM,
        work=1.0 / clock,
        memory=1.0,
    )


def _a100_images(found: dict[Cell, Fitted], eager: Mapping[str, Fitted], hosts: Mapping[str, float]) -> None:
    fused = {name: found["V100", "tensorrt", name] for name in IMAGE_MODELS}
    faster = cells.ratio(eager, fused)
    for name in IMAGE_MODELS:
        if name not in eager:
            cell = cells.moved(
                fused[name], "the V100 cell by the mean ratio of eight workloads", 0.25, work=faster, memory=1.0
            )
            moved_s = cells.memory_s(name, "A100", fused=False)
            timing = replace(cell.timing, memory_s=moved_s or 0.0, host_s=hosts[name])
            found["A100", "eager", name] = replace(cell, timing=timing)
        found["A100", "tensorrt", name] = cells.fused_from_eager(found["A100", "eager", name], "A100", name)


def _language(found: dict[Cell, Fitted], power: Mapping[str, Power]) -> None:
    clock = catalogue.gpu("V100").max_mhz / catalogue.gpu("V100-SXM2").max_mhz
    for gpu in ("T4", "V100-SXM2", "A100"):
        found[gpu, "eager", "bert_large"] = cells.bert_cell(gpu, power)
    for gpu in ("T4", "V100", "A100"):
        found[gpu, "eager", "transformer"] = cells.transformer_cell(gpu, power)
    slower = "the V100-SXM2 cell, SM times in proportion to the clock"
    found["V100", "eager", "bert_large"] = cells.moved(
        found["V100-SXM2", "eager", "bert_large"], slower, _FORM, work=1.0 / clock, memory=1.0
    )
    found["V100-SXM2", "eager", "transformer"] = cells.moved(
        found["V100", "eager", "transformer"], "the V100 cell by the clock", _FORM, work=clock, memory=1.0
    )
    gpt2 = cells.gpt2_cell(power)
    reference = found["V100", "eager", "bert_large"].timing.work_per_sample_s
    for gpu in ("T4", "V100", "V100-SXM2", "A100"):
        pace = found[gpu, "eager", "bert_large"].timing.work_per_sample_s / reference
        source = gpt2.source if gpu == "V100" else "the V100 cell by the ratio of BERT Large"
        moved = cells.moved(gpt2, source, 0.0 if gpu == "V100" else 0.2, work=pace, memory=pace)
        found[gpu, "tensorrt", "gpt2"] = moved
        slow = cells.moved(moved, source, 0.1, work=TRANSFORMER_ENGINE, memory=TRANSFORMER_ENGINE)
        found[gpu, "eager", "gpt2"] = replace(slow, timing=replace(slow.timing, host_s=_HOST_GPT2_S))
        for name in ("bert_large", "transformer"):
            less = 1.0 / TRANSFORMER_ENGINE
            fused = cells.moved(
                found[gpu, "eager", name], "the eager cell over 1.19", 0.1, work=less, memory=less, latency=less
            )
            found[gpu, "tensorrt", name] = replace(fused, timing=replace(fused.timing, host_s=0.0))


def _hopper(found: dict[Cell, Fitted]) -> None:
    """H100 and H200: no measurement at all; the A100 in proportion to SMs, clock and bandwidth."""
    old = catalogue.gpu("A100")
    for gpu in ("H100", "H200"):
        new = catalogue.gpu(gpu)
        work = old.sm_count * old.max_mhz / (new.sm_count * new.max_mhz)
        memory = old.mem_bw_gbs / new.mem_bw_gbs
        for (other, engine, name), cell in list(found.items()):
            if other == "A100":
                source = "the A100 cell by SMs, clock and bandwidth; no measurement"
                found[gpu, engine, name] = cells.moved(
                    cell, source, _FAR, work=work, memory=memory, latency=old.max_mhz / new.max_mhz
                )


def kernels(workload: str, fitted: Fitted) -> Fitted:
    """The cell with the number of kernels that an iteration of the workload launches."""
    known = dict(zip(table("kernels").workload, table("kernels").kernels, strict=True))
    return replace(fitted, timing=replace(fitted.timing, kernels=float(known.get(workload, 0.0))))

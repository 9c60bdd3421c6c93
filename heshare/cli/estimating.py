"""`heshare estimate`: one question to the device model."""

from __future__ import annotations

from typing import Annotated

import typer

from heshare.cli.common import Json, emit, emit_json


def estimate(
    gpu: Annotated[str, typer.Argument(help="A GPU, such as T4, V100, V100-SXM2, A100.")],
    residents: Annotated[list[str], typer.Argument(help="What runs on it, such as resnet50:16@50 vgg19:8@50.")],
    sm_mhz: Annotated[int | None, typer.Option(help="SM clock, MHz; the card's default unless given.")] = None,
    precision: Annotated[str, typer.Option(help="fp32 (framework default), tf32 or fp16.")] = "fp32",
    engine: Annotated[str, typer.Option(help="eager, or tensorrt (no host floor).")] = "eager",
    json: Json = False,
) -> None:
    """Ask the device model: time, power and clock of workloads that share a GPU.

    A workload is written model:inference_batch_size@mps_percentage; TIME is seconds per iteration. Time slices and MIG
    instances are written resnet50:16@time-slice and resnet50:16@mig-3g, training workloads eaco_vgg16-train:32.
    """
    from dataclasses import asdict

    import pandas as pd

    from heshare.devices.estimate import estimate as ask

    answer = ask(gpu, residents, sm_mhz=sm_mhz, precision=precision, engine=engine)
    if json:
        emit_json(asdict(answer))
        return
    frame = pd.DataFrame([asdict(task) for task in answer.tasks])
    emit(frame, False, gpu=answer.gpu, sm_mhz=answer.sm_mhz, power_w=answer.power_w)

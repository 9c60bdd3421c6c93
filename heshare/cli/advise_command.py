"""`heshare advise`: whether to share a GPU between given workloads, and with which shares and clock."""

from typing import Annotated

import pandas as pd
import typer

from heshare.cli.json_output import print_json
from heshare.cli.options import PRECISION_HELP, Json, gpu_names, model_names, to_records
from heshare.lab.advice.advice import advise as advise_on
from heshare.paper.tables import to_text
from heshare.world.workload import DEFAULT_PRECISION


def advise(
    gpu: Annotated[str, typer.Argument(help="A GPU, such as T4, V100, A100, H100.", autocompletion=gpu_names)],
    workloads: Annotated[
        list[str],
        typer.Argument(
            help="Workloads: resnet50:8, 3xresnet50:8 (copies), or as measured asr=per_s:104,w:155,sm:6.",
            autocompletion=model_names,
        ),
    ],
    precision: Annotated[str, typer.Option(help=PRECISION_HELP)] = DEFAULT_PRECISION,
    engine: Annotated[str, typer.Option(help="eager, or tensorrt (no host floor).")] = "eager",
    export: Annotated[
        str | None, typer.Option(help="Print the recommendation as mps (shell), slurm, hami or dra (Kubernetes YAML).")
    ] = None,
    json: Json = False,
) -> None:
    """Recommend whether and how to share a GPU, with which shares and clock; one workload means two copies of it.

    Speed and energy are relative to the same work one task after the other at the GPU's default clock; s and J are of
    an iteration; ranges are 90 % intervals. Measurements of a workload alone on this GPU are written per_s (iterations
    per second), sm (SM activity, %) and, if known, w (board power, W), dram (memory activity, %), gpu (nvidia-smi's
    utilisation, %) and mib (memory, MiB); log:FILE takes w and gpu from a CSV log of nvidia-smi.
    """
    advice = advise_on(gpu, workloads, precision=precision, engine=engine)
    if export is not None:
        typer.echo(advice.export(export), nl=False)
        return
    if json:
        sentences = {name: getattr(advice, name) for name in ("recommendation", "changes", "notes")}
        print_json({"gpu": advice.gpu.name, **sentences, "rows": to_records(advice.to_frame())})
        return
    first = {name: advice.names.index(name) for name in advice.names}
    rows = [
        {"option": ">" * (each is advice.best) + str(each), "power_w": each.power_w}
        | {"speed": str(each.speed), "energy": str(each.energy)}
        | {f"{name} s": str(each.time_s[at]) for name, at in first.items()}
        | {f"{name} J": str(each.energy_j[at]) for name, at in first.items()}
        for each in advice.options
    ]
    typer.echo(f"{to_text(pd.DataFrame(rows))}\n\n{advice}")

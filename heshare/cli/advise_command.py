"""`heshare advise`: whether to share a GPU between given workloads, and with which shares and clock."""

from typing import Annotated

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
            help="Workloads: resnet50:8, 2xresnet50:8 (copies), or as measured asr=per_s:104,w:155,sm:6.",
            autocompletion=model_names,
        ),
    ],
    precision: Annotated[str, typer.Option(help=PRECISION_HELP)] = DEFAULT_PRECISION,
    engine: Annotated[str, typer.Option(help="eager, or tensorrt (no host floor).")] = "eager",
    export: Annotated[str | None, typer.Option(help="Print the recommendation as mps (shell) or slurm.")] = None,
    json: Json = False,
) -> None:
    """Recommend whether and how to share a GPU: each workload alone at its best, then what sharing adds.

    The best of a workload alone has the highest mean of work a second and work a joule; brackets are 90 % intervals.
    Measurements of a workload alone on this GPU are written per_s (iterations per second), sm (SM activity, %) and, if
    known, w (board power, W), dram (memory activity, %), gpu (nvidia-smi's utilisation, %) and mib (memory, MiB);
    log:FILE takes w and gpu from a CSV log of nvidia-smi.
    """
    advice = advise_on(gpu, workloads, precision=precision, engine=engine)
    if export is not None:
        typer.echo(advice.export(export), nl=False)
        return
    if json:
        sentences = {name: getattr(advice, name) for name in ("recommendation", "given", "changes", "notes")}
        alone = [
            {"workload": each.name, "batch_size": each.best.way.workloads[0].batch_size, "sm_mhz": each.best.sm_mhz}
            | {"speed": each.best.speed.value, "energy": each.best.energy.value, "sentence": str(each)}
            for each in advice.alone
        ]
        rows = to_records(advice.to_frame())
        print_json({"gpu": advice.gpu.name, "alone": alone, **sentences, "rows": rows})
        return
    typer.echo(str(advice))
    if len(advice.workloads) > 1:
        typer.echo(f"\n{to_text(advice.summary())}")

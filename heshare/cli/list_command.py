"""`heshare list`: the names of policies, GPUs, workloads and notebooks."""

from enum import StrEnum
from typing import Annotated

import typer

from heshare.cli.options import Json, print_frame


class Kind(StrEnum):
    """What `heshare list` lists."""

    POLICIES = "policies"
    GPUS = "gpus"
    WORKLOADS = "workloads"
    NOTEBOOKS = "notebooks"


def list_names(what: Annotated[Kind, typer.Argument(help="What to list.")], json: Json = False) -> None:
    """List what can be named: policies, GPUs, workloads or notebooks."""
    from heshare.paper.explore import listings

    tables = {
        Kind.POLICIES: listings.policies,
        Kind.GPUS: listings.gpus,
        Kind.WORKLOADS: listings.models,
        Kind.NOTEBOOKS: listings.notebooks,
    }
    frame = tables[what]()
    # The parameters of a policy are many: JSON has them.
    print_frame(frame if json else frame.drop(columns="parameters", errors="ignore"), json)

"""`heshare verify`: a fresh run of the notebooks beside the reference results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heshare.cli.options import Json, print_json
from heshare.shared import files

if TYPE_CHECKING:
    from heshare.paper.reference.reference_results import ComparisonOfRuns

MOST = 10


def verify(
    out: Annotated[Path | None, typer.Option(help="Folder of the run; figures/ unless given.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Make this run the reference; write ARTIFACT.md.")] = False,
    most: Annotated[int, typer.Option(min=1, help="Differences printed for each file, the largest first.")] = MOST,
    json: Json = False,
) -> None:
    """Compare the CSV files of a run (figures/) with reference/: a line for each difference, and exit code 1."""
    from heshare.paper.notebooks.output_folders import folder_for
    from heshare.paper.reference import artefact_page, reference_results

    run = (out or folder_for("paper")).resolve()
    if update:
        seconds = files.root() / "build" / "notebooks" / "paper" / "seconds.json"
        changed = reference_results.update(run, seconds)
        changed += [artefact_page.NAME] * artefact_page.write()
        if json:
            print_json({"changed": changed})
            return
        typer.echo("\n".join([*changed, f"{len(changed)} files of the reference changed."]))
        return
    compared = reference_results.compare(run)
    if json:
        rows = [
            {name: getattr(one, name) for name in ("file", "row", "column", "expected", "found", "relative")}
            for one in compared.differences
        ]
        lists = {name: list(getattr(compared, name)) for name in ("missing", "new", "versions")}
        more = {"moved": dict(compared.moved), "rows": rows}
        print_json({"same": compared.same, "compared": compared.compared, **lists, **more})
    else:
        _print(compared, most)
    if not compared.same:
        raise typer.Exit(1)


def _print(compared: ComparisonOfRuns, most: int) -> None:
    from heshare.paper.reference import reference_results

    for difference in reference_results.largest(compared.differences, most):
        typer.echo(str(difference))
    for names, what in ((compared.missing, "missing"), (compared.new, "new, not in the reference")):
        for name in names:
            typer.echo(f"{name}: {what}")
    how = ", byte for byte"
    if compared.versions:
        typer.echo(
            f"Other versions than the reference's: {', '.join(compared.versions)}. Forests and searches take other "
            f"paths: {sum(compared.moved.values())} values in {len(compared.moved)} files moved by more than "
            f"{reference_results.ROUNDING:g}. That is no difference as long as every claim keeps its verdict and the "
            "reference's interval holds its value."
        )
        how = ": their claims and columns"
    typer.echo(
        f"{compared.compared} files compared with the reference{how}: {len(compared.differences)} differences in "
        f"{len({one.file for one in compared.differences})} files, {len(compared.missing)} missing, "
        f"{len(compared.new)} new."
    )

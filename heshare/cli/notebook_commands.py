"""`heshare notebook`: run and list the notebooks, write the claims and the page, compare with the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from heshare.cli.json_output import print_json
from heshare.cli.options import Json, Out, Quiet, notebook_names, print_frame
from heshare.paper.claims import card_claims, claim_table
from heshare.paper.notebooks import parameters, run_notebooks
from heshare.paper.notebooks.execute_notebook import ExecutedNotebook, NotebookError
from heshare.paper.notebooks.output_folders import folder_for, in_words
from heshare.paper.notebooks.own_notebook import run_own
from heshare.paper.page import outputs
from heshare.paper.provenance.run_record import SOURCE
from heshare.paper.reference import reference_results
from heshare.paper.reference.reference_results import ComparisonOfRuns
from heshare.paper.studies import sources
from heshare.shared.errors import require
from heshare.shared.extras import require_extra
from heshare.shared.inputs.bounds import MOST_PROCESSES

app = typer.Typer(
    help="Run the notebooks, evaluate the claims, compare with the reference.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_FROM_HERE = "Every table and figure of the paper: make figures. Results beyond the paper: make beyond."


@app.command("run")
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Notebooks, by name, number (01), or the path of your own.", autocompletion=notebook_names),
    ] = None,
    group: Annotated[str | None, typer.Option(help="All notebooks of a group: paper, beyond, or all.")] = None,
    profile: Annotated[str, typer.Option(help="smoke (tiny) or paper.")] = "paper",
    parameter: Annotated[list[str] | None, typer.Option("-p", help="name=value; may be repeated.")] = None,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_PROCESSES, help="How many at a time.")] = 2,
    out: Out = None,
    with_claims: Annotated[
        bool,
        typer.Option("--claims", help="Then print their claims, and the differences from reference/."),
    ] = False,
    with_page: Annotated[bool, typer.Option("--page", help="Then write the claims and the page of results.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also run notebooks whose inputs have not changed.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run notebooks and write their figures and tables; a misspelt parameter is an error.

    The path of a notebook of your own runs it, also outside of a clone; its results, the executed copy and run.json go
    to --out, or to NAME-run.
    """
    if names and any(map(parameters.is_own, names)):
        require_extra("notebooks", "heshare notebook")
        _run_own(names, _given(parameter), None if out is None else out.resolve(), json=json)
        return

    require_extra("notebooks", "heshare notebook")
    known = f"Known: {', '.join(parameters.group('all'))}."
    found = "names and --group" if names else "no notebook"
    require(None, found, bool(names) != bool(group), "names, or --group", known)
    given = _given(parameter)
    folder = None if out is None else out.resolve()

    paths = parameters.find(names or parameters.group(group or ""))
    if group and SOURCE in given:  # the others show no GPU
        paths = [path for path in paths if SOURCE in parameters.read(path).defaults]

    executed: list[ExecutedNotebook] = []
    failed = None
    try:
        executed = run_notebooks.run(
            paths, profile=profile, given=given, out=folder, jobs=jobs, quiet=quiet or json, fresh=fresh
        )
    except NotebookError as error:
        if not with_page:
            raise
        failed = error  # the claims of the others are evaluated

    _print_run(executed, profile, json=json)
    if with_page:
        source = sources.read(sources.absolute(str(given.get(SOURCE, sources.EMULATED))))
        below = "" if source.is_default else source.folder
        _write_page((folder or folder_for(profile)) / below, quiet=json)
    if with_claims and executed and not json:
        _print_claims_of(executed)
    if failed is not None:
        raise failed


def _given(parameters: Sequence[str] | None) -> dict[str, object]:
    for text in parameters or ():
        require(None, repr(text), "=" in text, "name=value", "Write -p name=value.")
    pairs = (each.split("=", 1) for each in parameters or ())
    return {name.strip(): value for name, value in pairs}


def _run_own(names: Sequence[str], given: dict[str, object], out: Path | None, *, json: bool) -> None:
    require(None, ", ".join(names), len(names) == 1, "one notebook of your own at a time", "Run them one by one.")
    executed = run_own(names[0], given, out)
    _print_run([executed], executed.profile, json=json)
    if not json:
        typer.echo(f"Executed copy: {in_words(executed.executed.parent)}{executed.executed.name}")


def _print_run(executed: Sequence[ExecutedNotebook], profile: str, *, json: bool) -> None:
    if json:
        rows = [
            {
                "notebook": book.name,
                "profile": book.profile,
                "seconds": round(book.seconds, 1),
                "out": str(book.out),
                "outputs": [path.name for path in book.outputs],
            }
            for book in executed
        ]
        print_json({"profile": profile, "rows": rows})
        return

    for where in sorted({book.out for book in executed}):
        books = [book for book in executed if book.out == where]
        written = sum(len(book.outputs) for book in books)
        kind = "" if books[0].profile == profile else f", with the profile {books[0].profile}"
        typer.echo(f"{len(books)} notebook{'s' * (len(books) != 1)}, {written} files in {in_words(where)}{kind}")


def _print_claims_of(executed: Sequence[ExecutedNotebook]) -> None:
    """Print the claims that these notebooks evaluated, and the differences from the reference."""
    out = executed[0].out
    source = outputs.source_of(out)
    if not source.is_default:
        print_frame(card_claims.readable(card_claims.write(out, source)), False)
        return
    table = claim_table.write(out)
    own = table[table["notebook"].isin({book.name for book in executed})]
    numbers = own[own["unit"] != ""].dropna(subset="value")
    is_ordering = numbers["paper"] == "ordering"
    print_frame(claim_table.readable(numbers[~is_ordering]), False)
    orderings = [f"{row.id} {row.verdict}" for row in own[own["paper"] == "ordering"].itertuples()]
    typer.echo(f"Orderings: {', '.join(orderings) or 'none'}")

    pictures = [path for book in executed for path in book.outputs if path.suffix == ".png"]
    for path in pictures:
        typer.echo(f"Figure: {in_words(path.parent)}{path.name}")
    _print_comparison(reference_results.compare(out), most=3)
    typer.echo(_FROM_HERE)


@app.command("list")
def list_(json: Json = False) -> None:
    """List the notebooks, their parameters and what they write."""
    books = [parameters.read(path) for path in parameters.find()]
    if json:
        rows = [{"notebook": book.name, "parameters": book.defaults, "outputs": list(book.outputs)} for book in books]
        print_json(rows)
        return

    for book in books:
        shown = [f"{name}={value!r}" for name, value in book.defaults.items() if name not in parameters.RESERVED]
        typer.echo(book.name)
        typer.echo(f"    parameters: {', '.join(shown) or 'none'}")
        typer.echo(f"    writes: {', '.join(book.outputs) or 'nothing'}")
    if others := parameters.others():
        typer.echo(f"In no group of notebooks/profiles.yaml, so run by name only: {', '.join(others)}")


@app.command("claims")
def claims(
    out: Out = None,
    with_page: Annotated[bool, typer.Option("--page", help="Also write the page of results.")] = False,
    json: Json = False,
) -> None:
    """Merge the notebooks' claims into the table of claims and write it; print it, and the counts of verdicts."""
    folder = (out or folder_for("paper")).resolve()
    expected, action = "a folder with the claims of notebooks", "Run them first: make figures"
    require("--out", f"no claims/*.json in {folder}", any((folder / "claims").glob("*.json")), expected, action)
    source = outputs.source_of(folder)
    kept = claim_table.write(folder) if source.is_default else card_claims.write(folder, source)
    table = _write_page(folder, quiet=json) if with_page else kept
    if json:
        print_frame(table, True)
        return
    if not source.is_default:
        print_frame(card_claims.readable(table), False)
        return
    print_frame(claim_table.readable(table), False)
    typer.echo(f"{len(table)} claims: {claim_table.count_text(table)}")


def _write_page(folder: Path, *, quiet: bool) -> pd.DataFrame:
    """Write the claims and the pages of results into a folder; return the claims."""
    from heshare.paper.page import results_page, source_page  # takes seconds to import

    source = outputs.source_of(folder)
    if source.is_default:
        table = claim_table.write(folder)
        page = results_page.write(folder, table)
        counts = f"{len(table)} claims: {claim_table.count_text(table)}"
    else:
        table = card_claims.write(folder, source)
        page = source_page.write(folder, table, run_notebooks.copies_of(source), source)
        counts = card_claims.count_text(table)
    if not quiet:
        typer.echo(counts)
        typer.echo(f"Open {in_words(folder)}{page.name}")
    return table


@app.command("verify")
def verify(
    out: Annotated[Path | None, typer.Option(help="Folder of the run; figures/ unless given.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Make this run the reference; write ARTIFACT.md.")] = False,
    most: Annotated[int, typer.Option(min=1, help="Differences printed for each file, the largest first.")] = 10,
    json: Json = False,
) -> None:
    """Compare the CSV files of a run (figures/) with reference/: a line for each difference, and exit code 1."""
    from heshare.paper.reference import artefact_page, reference_results

    folder = (out or folder_for("paper")).resolve()
    if update:
        changed = reference_results.update(folder)
        changed += [artefact_page.NAME] * artefact_page.write()
        if json:
            print_json({"changed": changed})
            return
        typer.echo("\n".join([*changed, f"{len(changed)} files of the reference changed."]))
        return

    compared = reference_results.compare(folder)
    if json:
        names = ("file", "row", "column", "expected", "found", "relative")
        rows = [{name: getattr(one, name) for name in names} for one in compared.differences]
        lists = {name: list(getattr(compared, name)) for name in ("not_made", "new", "versions")}
        about = {"same": compared.same, "compared": compared.compared, "moved": dict(compared.moved)}
        print_json({**about, **lists, "rows": rows})
    else:
        _print_comparison(compared, most)
    if not compared.same:
        raise typer.Exit(1)


def _print_comparison(compared: ComparisonOfRuns, most: int) -> None:
    for difference in reference_results.largest(compared.differences, most):
        typer.echo(str(difference))
    for name in compared.new:
        typer.echo(f"{name}: new, not in the reference")

    how = ", byte for byte"
    if compared.versions:
        typer.echo(
            f"Other library versions than the reference's: {', '.join(compared.versions)}. Random forests and searches "
            f"give other results: {sum(compared.moved.values())} values in {len(compared.moved)} files changed by more "
            f"than {reference_results.ROUNDING:g}. That counts as no difference if every claim has the same verdict "
            "and its value is in the reference's interval."
        )
        how = ": their claims and columns"
    typer.echo(
        f"{compared.compared} files compared with the reference{how}: {len(compared.differences)} differences in "
        f"{len({one.file for one in compared.differences})} files, {len(compared.new)} new, "
        f"{len(compared.not_made)} of the reference not made."
    )

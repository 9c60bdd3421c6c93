"""`heshare notebook`, `claims`, `page` and `verify`: figures and tables, the claims, the page of all, the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.cli.options import Json, Out, Quiet, notebook_names, print_frame, print_json
from heshare.shared import files
from heshare.shared.errors import require
from heshare.shared.extras import require_extra
from heshare.shared.inputs.bounds import MOST_PROCESSES

if TYPE_CHECKING:
    import pandas as pd

    from heshare.paper.notebooks.execute_notebook import ExecutedNotebook
    from heshare.paper.reference.reference_results import ComparisonOfRuns

app = typer.Typer(help="Run the notebooks strictly, or list them.", no_args_is_help=True, rich_markup_mode=None)


@app.command("run")
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Notebooks, by name or number (01).", autocompletion=notebook_names)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All notebooks.")] = False,
    profile: Annotated[str, typer.Option(help="smoke (tiny), paper, or live (a GPU).")] = "paper",
    parameter: Annotated[list[str] | None, typer.Option("-p", help="name=value; may be repeated.")] = None,
    jobs: Annotated[int, typer.Option(min=1, max=MOST_PROCESSES, help="How many at a time.")] = 2,
    out: Out = None,
    with_page: Annotated[bool, typer.Option("--page", help="Then write the claims and the page of results.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also run notebooks of which nothing has changed.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run notebooks and write their figures and tables; a misspelt parameter is an error."""
    from heshare.paper.notebooks import notebook_parameters, run_notebooks
    from heshare.paper.notebooks.execute_notebook import NotebookError
    from heshare.paper.notebooks.output_folders import folder_for

    files.root()
    require_extra("notebooks", "heshare notebook")
    known = f"Known: {', '.join(path.stem for path in notebook_parameters.find())}."
    found = "names and --all" if names else "no notebook"
    require(None, found, bool(names) != everything, "names, or --all", known)
    paths = notebook_parameters.find(names or ())
    for text in parameter or ():
        require(None, repr(text), "=" in text, "name=value", "Write -p name=value.")
    given: dict[str, object] = {name.strip(): value for name, value in (each.split("=", 1) for each in parameter or ())}
    folder = None if out is None else out.resolve()
    executed, failed = [], None
    how: dict[str, Any] = {"out": folder, "jobs": jobs, "quiet": quiet or json, "fresh": fresh}
    try:
        executed = run_notebooks.run(paths, profile=profile, given=given, **how)
    except NotebookError as error:
        if not with_page:
            raise
        failed = error  # the claims of the others are evaluated
    _print_run(executed, profile, json=json)
    if with_page:
        _write_claims(folder or folder_for(profile), with_page=True, quiet=json, fresh=fresh)
    if failed is not None:
        raise failed


def _print_run(executed: Sequence[ExecutedNotebook], profile: str, *, json: bool) -> None:
    from heshare.paper.notebooks.output_folders import in_words

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


@app.command("list")
def list_(json: Json = False) -> None:
    """List the notebooks, their parameters and what they write."""
    from heshare.paper.notebooks import notebook_parameters

    books = [notebook_parameters.read(path) for path in notebook_parameters.find()]
    if json:
        print_json(
            [{"notebook": book.name, "parameters": book.defaults, "outputs": list(book.outputs)} for book in books]
        )
        return
    for book in books:
        typer.echo(book.name)
        parameters = [
            f"{name}={value!r}" for name, value in book.defaults.items() if name not in notebook_parameters.RESERVED
        ]
        typer.echo(f"    parameters: {', '.join(parameters) or 'none'}")
        typer.echo(f"    writes: {', '.join(book.outputs) or 'nothing'}")
    if others := notebook_parameters.own_and_others()[1]:
        typer.echo(f"Not listed in notebooks/inputs.yaml, so run by name only: {', '.join(others)}")


def claims(
    out: Out = None,
    with_page: Annotated[bool, typer.Option("--page", help="Also write the page of results.")] = False,
    json: Json = False,
) -> None:
    """Merge the notebooks' claims into the table of claims and write it; print which do not hold, and the counts."""
    from heshare.paper.notebooks.output_folders import folder_for

    table = _write_claims((out or folder_for("paper")).resolve(), with_page=with_page, quiet=json)
    if json:
        print_frame(table, True)


def _write_claims(folder: Path, *, with_page: bool, quiet: bool, fresh: bool = True) -> pd.DataFrame:
    from heshare.paper.claims import claim_table, claims_figure
    from heshare.paper.claims.verdicts import FAILED, LARGER
    from heshare.paper.notebooks.output_folders import in_words

    rows = (folder / "claims").glob("*.json")
    expected, action = "a folder with the claims of notebooks", "Run them first: heshare notebook run --all"
    require("--out", f"no claims/*.json in {folder}", any(rows), expected, action)
    table = claim_table.write(folder)
    claims_figure.write(folder, table)
    written = _write_page(folder, fresh=fresh) if with_page else None
    if quiet:
        return table
    for row in table[table["verdict"].isin([FAILED, LARGER])].itertuples():
        typer.echo(f"{row.verdict}: {row.id} {row.statement}{f' ({row.part})' * bool(row.part)}: {row.why}")
    typer.echo(f"{len(table)} claims: {claim_table.count_text(table)}")
    typer.echo(claim_table.profile_text(folder))
    typer.echo(f"Open {in_words(folder)}claims.md; as a figure: {in_words(folder)}{claims_figure.NAME}.pdf")
    if written is not None:
        typer.echo(f"Open {in_words(folder)}{written.name}")
    return table


def _write_page(folder: Path, *, fresh: bool) -> Path:
    from heshare.paper.claims.claim_table import executed_copies
    from heshare.paper.notebooks import kept_outputs
    from heshare.paper.notebooks.output_folders import PAGE

    copies = executed_copies(folder)
    key = kept_outputs.page_key(folder, copies)
    if fresh or not kept_outputs.page_is_kept(folder, copies, key):
        # Imported here: it takes seconds, and the table of claims is written without it.
        from heshare.paper.report import results_page

        results_page.write(folder, copies)
        kept_outputs.keep_page(folder, copies, key)
    return folder / PAGE


def verify(
    out: Annotated[Path | None, typer.Option(help="Folder of the run; figures/ unless given.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Make this run the reference; write ARTIFACT.md.")] = False,
    most: Annotated[int, typer.Option(min=1, help="Differences printed for each file, the largest first.")] = 10,
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
        _print_comparison(compared, most)
    if not compared.same:
        raise typer.Exit(1)


def _print_comparison(compared: ComparisonOfRuns, most: int) -> None:
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

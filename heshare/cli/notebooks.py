"""`heshare notebook` and `heshare claims`: regenerate tables, figures and the claims table."""

from __future__ import annotations

from typing import Annotated

import typer

from heshare.cli.common import Json, Out, emit, emit_json

app = typer.Typer(help="Run the notebooks strictly, or list them.", no_args_is_help=True)


@app.command("run")
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Notebooks, by name or number (01).")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All notebooks.")] = False,
    profile: Annotated[str, typer.Option(help="smoke (tiny), paper, or live (a GPU).")] = "paper",
    parameter: Annotated[list[str] | None, typer.Option("-p", help="name=value; may be repeated.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="How many at a time.")] = 2,
    out: Out = None,
    json: Json = False,
) -> None:
    """Run notebooks and write their figures and tables; a misspelt parameter is an error."""
    from heshare.errors import InputError
    from heshare.reporting import parameters, runner

    if bool(names) == everything:
        raise InputError(
            found="no notebook" if not names else "names and --all",
            expected="names, or --all",
            action=f"Known: {', '.join(path.stem for path in parameters.find())}.",
        )
    paths = parameters.find(names or ())
    folder = (out or runner.folder_for(profile)).resolve()
    done = runner.run(paths, profile=profile, given=_pairs(parameter or []), out=folder, jobs=jobs, quiet=json)
    if json:
        rows = [
            {"notebook": one.name, "seconds": round(one.seconds, 1), "outputs": [path.name for path in one.outputs]}
            for one in done
        ]
        emit_json({"profile": profile, "out": str(folder), "rows": rows})
        return
    for one in done:
        typer.echo(f"{one.name}: {one.seconds:.1f} s, {len(one.outputs)} files in {_short(folder)}")


def _pairs(given: list[str]) -> dict[str, object]:
    from heshare.errors import InputError

    for text in given:
        if "=" not in text:
            raise InputError(found=repr(text), expected="name=value", action="Write -p name=value.")
    return {name.strip(): value for name, value in (text.split("=", 1) for text in given)}


def _short(folder: object) -> str:
    from pathlib import Path

    from heshare import files

    path = Path(str(folder))
    return f"{path.relative_to(files.root()) if path.is_relative_to(files.root()) else path}/"


@app.command("list")
def list_(json: Json = False) -> None:
    """List the notebooks, their parameters and what they write."""
    from heshare.reporting import parameters

    books = [parameters.read(path) for path in parameters.find()]
    if json:
        emit_json([{"notebook": b.name, "parameters": b.defaults, "outputs": list(b.outputs)} for b in books])
        return
    for book in books:
        typer.echo(book.name)
        shown = [f"{name}={value!r}" for name, value in book.defaults.items() if name not in parameters.RESERVED]
        typer.echo(f"    parameters: {', '.join(shown) or 'none'}")
        typer.echo(f"    writes: {', '.join(book.outputs) or 'nothing'}")


def claims(out: Out = None, json: Json = False) -> None:
    """Merge what the notebooks found into the table of the paper's claims, write it and print it."""
    from heshare.reporting import claims as priced
    from heshare.reporting import claims_figure, runner

    folder = (out or runner.folder_for("paper")).resolve()
    table = priced.write(folder)
    claims_figure.write(folder, table)
    if json:
        emit(table, True)
        return
    short = table[table["verdict"] != priced.NOT_YET]
    short = short[["id", "statement", "paper", "measured", "low", "high", "n", "verdict"]]
    counts = table["verdict"].value_counts()
    emit(short.reset_index(drop=True), False)
    typer.echo("; ".join(f"{name}: {counts.get(name, 0)}" for name in priced.VERDICTS))
    typer.echo(f"Written: {_short(folder)}claims.csv, claims.md, claims.json; {claims_figure.NAME}.pdf and others")

"""The command line: `heshare --help`. Each command imports what it needs when it runs, so that help is quick."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heshare.cli import comparing, estimating, executing, live, machine, notebooks, planning, recording
from heshare.errors import HeShareError


class _Group(TyperGroup):
    """Commands whose own errors are one message on stderr and an exit code, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeShareError as error:
            typer.echo(f"heshare: {error}", err=True)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=_Group,
    name="heshare",
    help="Energy-aware sharing of heterogeneous GPUs: predict, plan, run, and regenerate the paper's results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from heshare.reporting.provenance import version

        typer.echo(version())
        raise typer.Exit


@app.callback()
def _heshare(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Energy-aware sharing of heterogeneous GPUs: predict, plan, run, and regenerate the paper's results."""


app.command("compare")(comparing.compare)
app.command("plan")(planning.plan)
app.command("run")(executing.run)
app.command("live")(live.live)
app.command("profile")(recording.profile)
app.command("estimate")(estimating.estimate)
app.command("claims")(notebooks.claims)
app.add_typer(notebooks.app, name="notebook")
app.command("calibrate")(recording.calibrate)
app.command("doctor")(machine.doctor)
app.command("restore")(machine.restore)


def main() -> None:
    """Run the command line (the entry point `heshare`)."""
    app(prog_name="heshare")

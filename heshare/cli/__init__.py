"""The command line: `heshare --help`."""

import re
import signal
import sys
import warnings
from traceback import extract_tb
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heshare.cli.json_output import print_json
from heshare.shared import plugins
from heshare.shared.errors import SYSTEM_ERRORS, HeShareError, describe, from_system
from heshare.shared.extras import of_import
from heshare.shared.files import PACKAGE
from heshare.shared.standard_streams import dropping, fill_closed
from heshare.shared.version import __version__

# `heshare --help` prints these lines, since a command's module is imported only when the command is called.
HELP = {
    "compare": "Compare policies on the same task sets.",
    "plan": "Plan a task set with HeShare.",
    "run": "Run a task set, a file of jobs or a plan on emulated GPUs.",
    "import": "Convert a trace of jobs to a task file.",
    "jobs": "Run jobs on real GPUs; see and end such a run.",
    "live": "Compare policies on this machine's real GPUs.",
    "profile": "Record a GPU's profile.",
    "estimate": "Estimate time, power and clock of workloads on a GPU.",
    "advise": "Recommend whether and how to share a GPU.",
    "notebook": "Run the notebooks, evaluate claims, compare results.",
    "calibrate": "Fit the device model again.",
    "list": "List the known policies, GPUs or workloads.",
    "doctor": "Check this machine's GPUs, drivers and permissions, and print what to do next.",
    "restore": "Clean up after a run that was killed.",
}
"""Help line of each command of this package; commands of other distributions have their own."""


def _fail(error: dict[str, object], as_json: bool) -> None:
    if as_json:
        try:
            print_json({"error": error})
        except BrokenPipeError:
            raise
        except OSError:  # standard output is what cannot be written
            as_json = False
    if not as_json:
        # The name of a file may contain terminal control characters.
        text = "".join(
            mark if mark.isprintable() or mark == "\n" else ascii(mark)[1:-1] for mark in str(error["message"])
        )
        typer.echo(f"heshare: {text}", err=True)


_OF_JOBS = ("status", "stop", "report")
_OPTIONS_OF_JOBS = ("--devices", "--resume", "--allow-clocks", "--dry-run")
_UsageError: Any = typer.BadParameter.__base__  # of click, or of typer's vendored copy of it


class _Group(TyperGroup):
    """Commands from entry points, imported when called; a `HeShareError` becomes a message on stderr and an exit code.

    With --json, stdout is one JSON document in every case: `{"error": ...}` if the command fails.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Only the names, for the suggestion after a misspelt command; `get_command` loads the command.
        names: dict[str, Any] = dict.fromkeys(plugins.names(plugins.COMMANDS))
        self.commands = names

    def list_commands(self, ctx: Any) -> list[str]:
        own = [name for name in plugins.names(plugins.COMMANDS) if name in HELP]
        return own + plugins.load_others(plugins.COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = []
        for name in self.list_commands(ctx):
            text = HELP.get(name)
            rows.append((name, text or self.get_command(ctx, name).get_short_help_str()))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def get_command(self, ctx: Any, name: str) -> Any:
        command: Any = plugins.load(plugins.COMMANDS, name)
        if command is None:
            return None
        if isinstance(command, typer.Typer):
            made: Any = typer.main.get_group(command)
            made.name = name
            return made
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name)(command)
        return typer.main.get_command(alone)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, rest = args[0], args[1:]
        if name in _OF_JOBS:
            raise typer.BadParameter(f"heshare {name} is now: heshare jobs {name}", ctx)
        found = [
            text for text in rest if text.split("=")[0] in _OPTIONS_OF_JOBS or (text == rest[0] and text[0] != "-")
        ]
        if name == "run" and found:
            action = (
                "On real GPUs: heshare jobs run JOBS.yaml, or --resume FOLDER. On emulated ones: --tasks JOBS.yaml."
            )
            found_text = f"{found[0]} is no option of heshare run, which runs on emulated GPUs"
            raise typer.BadParameter(f"{found_text}. {action}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        as_json = "--json" in [*ctx._protected_args, *ctx.args]

        try:
            return super().invoke(ctx)
        except HeShareError as error:
            _fail(describe(error), as_json)
            raise typer.Exit(error.exit_code) from None
        except _UsageError as error:
            if not as_json:
                raise
            _fail({"kind": "UsageError", "message": error.format_message()}, as_json)
            raise typer.Exit(error.exit_code) from None
        except (ModuleNotFoundError, *SYSTEM_ERRORS) as error:
            if isinstance(error, BrokenPipeError):
                raise  # the reader of the output has ended: no bad input
            wrapped = of_import(error) if isinstance(error, ModuleNotFoundError) else from_system(error)
            if wrapped is None:
                raise
            _fail(describe(wrapped), as_json)
            raise typer.Exit(wrapped.exit_code) from None
        except SystemExit as error:
            place = _line_of_user_code(error)
            if place is None:
                raise
            _fail(describe(HeShareError(f"{place}: it ends the process, with {error.code!r}")), as_json)
            raise typer.Exit(HeShareError.exit_code) from None
        except Exception as error:
            place = _line_of_user_code(error)
            if place is None or hasattr(error, "exit_code") or isinstance(error, typer.Abort):
                raise
            _fail(describe(HeShareError(f"{place}: {type(error).__name__}: {error}")), as_json)
            raise typer.Exit(HeShareError.exit_code) from None
        except KeyboardInterrupt as interrupt:
            typer.echo(f"heshare: interrupted{f': {interrupt}' if str(interrupt) else ''}", err=True)
            raise typer.Exit(128 + signal.SIGINT) from None


def _line_of_user_code(error: BaseException) -> str | None:
    """Return the last traceback line in a policy, predictor or other function of the user, or None."""
    installed = (str(PACKAGE), sys.prefix, sys.base_prefix, "<")
    lines = [(each.filename, str(each.lineno), each.name) for each in extract_tb(error.__traceback__)]
    # An error in a worker process has its traceback as the text of its cause.
    lines += re.findall(r'^ *File "(.+)", line (\d+), in (.+)$', str(error.__cause__ or ""), re.MULTILINE)
    own = [each for each in lines if not each[0].startswith(installed)]
    return "{}, line {}, in {}".format(*own[-1]) if own else None


app = typer.Typer(
    cls=_Group,
    name="heshare",
    help="Energy-aware sharing of heterogeneous GPUs: predict, plan, run, and regenerate the paper's results.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _heshare(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Energy-aware sharing of heterogeneous GPUs: predict, plan, run, and regenerate the paper's results."""


def _warning_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if category.__module__.startswith("heshare."):
        return f"heshare: {message}\n"
    return _PYTHONS_FORMAT(message, category, filename, lineno, line)


_PYTHONS_FORMAT = warnings.formatwarning


def main() -> None:
    """Run the command line (the entry point `heshare`)."""
    warnings.formatwarning = _warning_line
    fill_closed()
    sys.stderr = dropping(sys.stderr)  # a closed terminal or pipe, or a full disk, must not end a command
    app(prog_name="heshare")

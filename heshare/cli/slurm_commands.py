"""`heshare slurm`: held jobs of a Slurm cluster are planned, given a GPU, a share and an order, and released."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heshare.cli import options
from heshare.shared.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heshare.ops.slurm.release_plan import PlanSettings, ReleasePlan

app = typer.Typer(
    help="Plan the held jobs of a Slurm cluster, and release them with their GPU, share and order.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PolicyName = Annotated[
    str, typer.Option("--policy", help="Any that places jobs; see heshare list.", autocompletion=options.policy_names)
]
Types = Annotated[
    Path | None,
    typer.Option(help="YAML that maps types of gres.conf to GPUs, such as T4a: T4.", show_default=False),
]
Partition = Annotated[str | None, typer.Option(help="Only jobs and nodes of this partition.", show_default=False)]
User = Annotated[str | None, typer.Option(help="Only jobs of this user.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this the commands are only printed.")]
DEFAULT_POLICY = "heshare:trade-off"


@app.command("plan")
def plan(
    policy: PolicyName = DEFAULT_POLICY,
    types: Types = None,
    partition: Partition = None,
    user: User = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Print where, when and with which share held jobs would run, and the commands that would release them so.

    Held jobs are those of `sbatch --hold` with a comment such as 'heshare like=resnet50:8 iterations=20000'; others are
    left alone. Nothing is changed.
    """
    _print(_made(types, profiles, quiet, policy=policy, partition=partition, user=user, seed=seed), json)


@app.command("apply")
def apply(
    policy: PolicyName = DEFAULT_POLICY,
    types: Types = None,
    partition: Partition = None,
    user: User = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    yes: Yes = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Plan as `plan` does and, with --yes, give each job its GPU, share and order, and release it.

    Later batches of a GPU wait on the jobs before them, so that Slurm needs no help afterwards. If it is cut off, run
    it again: it continues.
    """
    from heshare.ops.slurm.release_plan import apply_release

    with _alone(yes):
        made = _made(types, profiles, quiet, policy=policy, partition=partition, user=user, seed=seed)
        _print(made, json)
        if yes:
            apply_release(made)
            typer.echo(f"Released {len(made.placements) + len(made.state.unreleased)} jobs.", err=True)
        elif made.commands:
            typer.echo("Nothing was changed: add --yes to run these commands.", err=True)


@app.command("watch")
def watch(
    policy: PolicyName = DEFAULT_POLICY,
    types: Types = None,
    partition: Partition = None,
    user: User = None,
    profiles: options.Profiles = None,
    seed: options.Seed = 0,
    every: Annotated[str, typer.Option(help="Time between looks at the queue, such as 10s.")] = "10s",
    yes: Yes = False,
) -> None:
    """Plan jobs as they arrive and, with --yes, release those that can start, until it is interrupted.

    Jobs that wait for a GPU stay held, and are planned again with those that arrive. Without --yes it looks once.
    """
    from heshare.ops.slurm.release_plan import ReleaseWatch

    every_s = options.parse_duration_s(every)
    with _alone(yes):
        watched = ReleaseWatch(
            _settings(types, profiles, policy=policy, partition=partition, user=user, seed=seed),
            typer.echo,
            carry_out=yes,
        )
        if yes:
            watched.run(every_s)
        else:
            watched.round()
            typer.echo("Nothing was changed: add --yes to run these commands, and those of later rounds.", err=True)


def _settings(types: Path | None, profiles: Path | None, *, policy: str, **others: Any) -> PlanSettings:
    from heshare.ops.slurm.release_plan import PlanSettings
    from heshare.ops.slurm.slurm_cards import read_types
    from heshare.policies.registry import canonical

    known = {} if types is None else read_types(types)
    return PlanSettings(canonical(policy), options.predictor_factory(profiles)(), known, **others)


def _made(types: Path | None, profiles: Path | None, quiet: bool, **others: Any) -> ReleasePlan:
    from heshare.ops.slurm.release_plan import plan_release, read_state

    with options.told("slurm", quiet):
        settings = _settings(types, profiles, **others)
        return plan_release(read_state(settings), settings)


@contextmanager
def _alone(changes: bool) -> Iterator[None]:
    """Hold the lock of this user's releases on this machine, so that two do not place the same jobs.

    Raises:
        InputError: another release has it.
    """
    if not changes:
        yield
        return
    from heshare.ops.state.held_note import state_folder
    from heshare.shared.file_lock import hold

    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lock = hold(folder / "slurm.lock")
    except BlockingIOError:
        action = "End it first, or leave the jobs to it."
        raise InputError("another `heshare slurm` that releases jobs", "one at a time", action) from None
    try:
        yield
    finally:
        lock.close()


def _print(made: ReleasePlan, json: bool) -> None:
    commands = [shlex.join(command) for command in made.commands]
    if json:
        options.print_frame(made.to_frame(), True, **made.totals, notes=list(made.notes), commands=commands)
        return
    if made.placements:
        options.print_frame(made.to_frame(), False)
        options.print_values(dict(made.totals))
    else:
        typer.echo("No held job is to be planned: submit with sbatch --hold --comment 'heshare like=...'.")
    for line in [*[f"- {note}" for note in made.notes], *commands]:
        typer.echo(line)

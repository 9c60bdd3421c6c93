"""`heshare compile`: compile and train once, before the first use."""

from __future__ import annotations

from time import perf_counter

import typer

from heshare.cli.options import Quiet


def compile_command(quiet: Quiet = False) -> None:
    """Compile numeric code and train the predictor for this machine now, not when they are first used.

    Both are kept beside the sources of a clone, or in ~/.cache/heshare; what is there already is not made again.
    """
    from heshare.lab.compile_all import compile_all

    began_s = perf_counter()
    count = compile_all(lambda step: None if quiet else typer.echo(f"heshare compile: {step}", err=True))
    if not quiet:
        typer.echo(f"{count} functions compiled in {perf_counter() - began_s:.0f} s")

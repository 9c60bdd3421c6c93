"""Progress on stderr: a tqdm bar, by default on a terminal after two seconds, or one line after one second."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from tqdm import tqdm

LINE_AFTER_S = 1.0
BAR_AFTER_S = 2.0
Update = Callable[[int, int | None], None]
"""A function of the number of steps done and the total number of steps, None if that is unknown."""


@contextmanager
def line_after_a_second(text: str, shown: bool) -> Iterator[None]:
    timer = Timer(LINE_AFTER_S, lambda: print(text, file=sys.stderr, flush=True))  # noqa: T201
    timer.daemon = True
    if shown:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def tqdm_bar(
    shown: bool | None,
    *,
    desc: str,
    unit: str = "it",
    total: int | None = None,
    initial: int = 0,
    bar_format: str | None = None,
) -> Iterator["tqdm[Any]"]:
    """Yield a tqdm bar on stderr: shown at once, never, or for None on a terminal after two seconds.

    The other arguments are those of `tqdm`.
    """
    late = shown is None
    bar_of_tqdm = tqdm(
        disable=None if late else not shown,
        delay=BAR_AFTER_S if late else 0.0,
        desc=desc,
        unit=unit,
        total=total,
        initial=initial,
        bar_format=bar_format,
    )
    with bar_of_tqdm as made:

        def show() -> None:
            made.delay = 0.0
            made.refresh()

        timer = Timer(BAR_AFTER_S, show)
        timer.daemon = True
        if late and not made.disable:
            timer.start()
        try:
            yield made
        finally:
            timer.cancel()


@contextmanager
def bar(name: str, unit: str, shown: bool | None) -> Iterator[Update]:
    """Show a bar on stderr while the block runs, as `tqdm_bar` does, and yield the function that updates it."""
    with tqdm_bar(shown, desc=name, unit=unit, bar_format="{desc}") as made:

        def update(done: int, total: int | None) -> None:
            made.desc = name
            made.bar_format = None
            made.total = total
            made.update(done - made.n)

        yield update


def rounds_of(update: Update, total: int | None) -> Callable[[int, object], None]:
    """Return a callback that updates a bar after each round of an improved search.

    `total` is None if a time budget ends the search.
    """

    def after_round(done: int, front: object) -> None:
        update(done, total)

    return after_round

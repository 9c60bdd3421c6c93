"""Progress on stderr: a bar, by default on a terminal after two seconds, or one line once a second has passed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from tqdm import tqdm

LINE_AFTER_S = 1.0
BAR_AFTER_S = 2.0
Update = Callable[[int, int | None], None]
"""Is called with the steps done, and the steps in all or None where nobody knows."""


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
def drawn(shown: bool | None, **options: Any) -> Iterator["tqdm[Any]"]:
    """Yield a bar of tqdm on stderr: shown at once, never, or for None on a terminal after two seconds."""
    late = shown is None
    with tqdm(disable=None if late else not shown, delay=BAR_AFTER_S if late else 0.0, **options) as made:

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
    """Show a bar on stderr as `drawn` does while the block runs, and yield what moves it."""
    with drawn(shown, desc=name, unit=unit, bar_format="{desc}") as made:

        def update(done: int, total: int | None) -> None:
            made.desc = name
            made.bar_format = None
            made.total = total
            made.update(done - made.n)

        yield update


def rounds_of(update: Update, total: int | None) -> Callable[[int, object], None]:
    """Return what moves a bar after each round of an improved search; `total` is None where a time ends the search."""

    def after_round(done: int, front: object) -> None:
        update(done, total)

    return after_round

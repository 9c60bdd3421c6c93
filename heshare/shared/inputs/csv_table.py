"""Streaming reader of CSV files, with errors that name the file, row and column; values in `foreign_table`."""

import csv
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from heshare.shared import files
from heshare.shared.errors import InputError, require

_LONGEST = 1 << 20
"""Most characters of a line; the csv module limits a cell to an eighth of this."""
# pandas writes 8 as 8.0 in a column with empty cells.
WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")


class RowError(InputError):
    """A bad row; the rest of the file may be good. `reason` is a short text, equal for equal faults."""

    def __init__(
        self,
        reason: str,
        found: str,
        expected: str,
        action: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        self.reason = reason
        super().__init__(found, expected, action, file=file, row=row, column=column)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), file=self.file, row=self.row, column=self.column), (
            self.reason,
            self.found,
            self.expected,
            self.action,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One data row; `line` is its line in the file (the header is 1), and cells are stripped of spaces."""

    file: Path
    line: int
    cells: dict[str, str]

    def error(self, column: str, reason: str, expected: str, action: str) -> RowError:
        found = repr(self.cells[column]) if self.cells.get(column) else "an empty cell"
        return RowError(reason, found, expected, action, file=self.file, row=self.line, column=column)

    def text(self, column: str, expected: str = "a value") -> str:
        value = self.cells[column]
        if not value:
            raise self.error(column, "empty cell", expected, "Fill the cell or remove the row.")
        return value

    def number_of(self, column: str, *, least: float = 0.0, above: bool = False, most: float = math.inf) -> float:
        """Return the cell as a finite number of at least `least` (above it, if `above`) and at most `most`."""
        expected = f"a number {'above' if above else 'of at least'} {least:g}"
        expected += f" and at most {most:g}" if most < math.inf else ""
        try:
            # Python accepts 1_0 as 10; in a table it is a typing error.
            value = float(self.text(column, expected).replace("_", "?"))
        except ValueError as error:
            if isinstance(error, RowError):
                raise
            raise self.error(column, "not a number", expected, "Correct the number.") from None
        if not math.isfinite(value):
            raise self.error(column, "not a finite number", expected, "Correct the number.")
        if value < least or (above and value == least):
            raise self.error(column, "negative" if value < 0 else "too small", expected, "Correct the number.")
        if value > most:
            raise self.error(column, "too large", expected, "Correct the number.")
        return value

    def whole(self, column: str, *, least: int = 0, most: int | None = None) -> int:
        """Return the cell as a whole number of at least `least` and at most `most`."""
        expected = f"a whole number of at least {least}" + ("" if most is None else f" and at most {most}")
        text = self.text(column, expected)
        if not WHOLE.fullmatch(text):
            self.number_of(column, least=least)
            raise self.error(column, "not a whole number", expected, "Correct the number.")
        value = int(text.partition(".")[0])
        if value < least:
            raise self.error(column, "negative" if value < 0 else "too small", expected, "Correct the number.")
        if most is not None and value > most:
            raise self.error(column, "too large", expected, "Correct the number.")
        return value


@dataclass(frozen=True, slots=True)
class Header:
    file: Path
    columns: tuple[str, ...]

    def require(self, columns: Sequence[str], optional: Sequence[str] | None = None) -> None:
        """Raise `InputError` for a column of `columns` that is missing or, with `optional`, for one of neither."""
        missing = next((name for name in columns if name not in self.columns), None)
        found = "a header without it: " + (", ".join(self.columns) or "no columns")
        expected = "the columns " + ", ".join(columns)
        action = "Add the column, or correct its name in the first line."
        require(missing, found, missing is None, expected, action, file=self.file, row=1)

        if optional is None:
            return
        known = (*columns, *optional)
        unknown = next((name for name in self.columns if name not in known), None)
        expected = "only " + ", ".join(known)
        action = "Correct its name or remove it."
        require(unknown or "(no name)", "an unknown column", unknown is None, expected, action, file=self.file, row=1)


def read_table(path: str | Path, columns: Sequence[str], optional: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield the rows of a CSV file that must have `columns`; with `optional`, other columns than both are an error."""
    for row in read_rows(path):
        if isinstance(row, RowError):
            raise row
        if isinstance(row, Header):
            row.require(columns, optional)
        else:
            yield row


def read_rows(
    path: str | Path, *, headers: Sequence[Sequence[str]] = (), delimiter: str = ","
) -> Iterator[Header | Row | RowError]:
    """Yield the header, then each row, or a `RowError` for one with too few or too many cells; blank lines are skipped.

    `headers` are those of a format without a header line: unless the first line is one of them, the header is the one
    with as many columns as it has cells.

    Raises:
        InputError: no such file, no UTF-8 text, an empty file, a column name twice, a first line that none of `headers`
            fits, or a quote that is never closed.
    """
    path = Path(path)
    header: Header | None = None
    line = 0
    try:
        with files.open_input(path) as content, TextIOWrapper(content, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(_lines(stream), strict=True, delimiter=delimiter)
            for cells in reader:
                first, line = line + 1, reader.line_num
                if not any(cell.strip() for cell in cells):
                    continue
                if header is None:
                    header = _header(path, cells if not headers else _fitting(path, headers, cells))
                    yield header
                    if not headers or _same(header.columns, cells):
                        continue
                yield _row(header, first, cells)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, line + 1, error) from error
    if header is None:
        raise InputError("an empty file", "a header and rows", "Check that this is the right file.", file=path)


def write_rows(path: Path, columns: Collection[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a header and rows; a float as the shortest text that reads back as the same float."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _lines(stream: TextIO) -> Iterator[str]:
    while line := stream.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise csv.Error(f"a line of {_LONGEST} characters or more")
        yield line


def _header(path: Path, cells: Sequence[str]) -> Header:
    columns = tuple(cell.strip() for cell in cells)
    doubled = sorted({name for name in columns if columns.count(name) > 1})
    if doubled:
        raise InputError(
            "the column twice", "each column once", "Remove one, or rename it.", file=path, row=1, column=doubled[0]
        )
    return Header(path, columns)


def _fitting(path: Path, headers: Sequence[Sequence[str]], cells: Sequence[str]) -> Sequence[str]:
    fitting = [header for header in headers if len(header) == len(cells)]
    expected = "a line of " + " or ".join(str(len(header)) for header in headers) + " cells"
    action = "Check that this is the right file, or give the columns and their names."
    require(None, f"a first line of {len(cells)} cells", bool(fitting), expected, action, file=path, row=1)
    return next((header for header in fitting if _same(header, cells)), fitting[0])


def _same(header: Sequence[str], cells: Sequence[str]) -> bool:
    return tuple(header) == tuple(cell.strip() for cell in cells)


def _row(header: Header, line: int, cells: Sequence[str]) -> Row | RowError:
    if len(cells) != len(header.columns):
        return RowError(
            "wrong number of cells",
            f"{len(cells)} cells",
            f"{len(header.columns)}, one for each column of the header",
            "Look for a missing or an extra comma.",
            file=header.file,
            row=line,
        )
    return Row(header.file, line, dict(zip(header.columns, (cell.strip() for cell in cells), strict=True)))


def _unreadable(path: Path, line: int, error: Exception) -> InputError:
    if isinstance(error, OSError):
        found = f"a file that cannot be read ({error.strerror})"
        found = "no such file" if isinstance(error, FileNotFoundError) else found
        return InputError(found, "a CSV file", "Correct the path.", file=path)
    if isinstance(error, UnicodeDecodeError):
        found = "bytes that are not UTF-8" + (" (UTF-16)" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else "")
        return InputError(found, "UTF-8 text", "Save the file as UTF-8.", file=path)
    return InputError(
        f"text that is no CSV ({error})",
        "comma-separated cells, quotes closed",
        "Correct the quotes of this row.",
        file=path,
        row=line,
    )

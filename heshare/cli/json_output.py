"""Conversion of values to JSON for the option --json."""

import json
import math
from typing import Any

import typer


def to_plain(value: Any) -> Any:
    """Return `value` as JSON values: NumPy numbers become Python's, numbers that are not finite become null."""
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(value: Any) -> str:
    text = json.dumps(to_plain(value), indent=2, ensure_ascii=False)
    # Bytes of a command line that are no UTF-8 text are escaped.
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


def print_json(value: Any) -> None:
    typer.echo(json_text(value), nl=False)

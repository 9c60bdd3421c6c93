"""Optional dependencies (extras): which libraries each extra installs, and errors that name a missing extra."""

from contextlib import AbstractContextManager
from importlib.util import find_spec
from types import MappingProxyType

from heshare.shared.errors import InputError, require
from heshare.shared.plugins import without_library

LIBRARIES = MappingProxyType(
    {
        "figures": ("jinja2", "matplotlib", "moocore", "pymoo", "seaborn"),
        "notebooks": ("ipykernel", "mistune", "nbformat", "papermill", "pygments"),
        "gym": ("gymnasium",),
        "live": ("torch", "torchvision", "transformers"),
    }
)
"""Libraries that the package imports, by extra; `pyproject.toml` has the versions."""


def without_uri_grammars() -> AbstractContextManager[None]:
    """Import libraries that use jsonschema in this block, without the grammars of internationalised URIs.

    Building the grammars takes jsonschema's optional `rfc3987_syntax` about 2 s, and nothing here checks such URIs.
    """
    return without_library("rfc3987_syntax")


def install_command(extra: str) -> str:
    """Return the command that installs an extra, in a clone and for an installed wheel."""
    return f"pip install 'heshare[{extra}]'"


def lacking(extra: str) -> list[str]:
    return [name for name in LIBRARIES[extra] if find_spec(name) is None]


def require_extra(extra: str, purpose: str) -> None:
    """Raise `InputError` unless the libraries of an extra are installed; they are not imported."""
    missing = lacking(extra)
    action = f"Install them: {install_command(extra)}"
    require(purpose, f"no {', '.join(missing)} in this environment", not missing, _expected(extra), action)


def of_import(error: ModuleNotFoundError) -> InputError | None:
    """Return the error that names the extra of a library that is missing; None for another module."""
    name = (error.name or "").partition(".")[0]
    extra = next((extra for extra, libraries in LIBRARIES.items() if name in libraries), None)
    action = f"Install them: {install_command(extra)}" if extra else ""
    return InputError(f"no {name} in this environment", _expected(extra), action) if extra else None


def _expected(extra: str) -> str:
    return f"the libraries of the extra {extra!r}"

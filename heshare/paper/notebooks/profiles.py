"""The notebooks' profiles (`notebooks/profiles.yaml`): the parameters of each notebook, and which run longest."""

from functools import cache
from typing import Any

from heshare.paper.notebooks import notebook_parameters as params
from heshare.paper.notebooks.notebook_parameters import Notebook
from heshare.shared.errors import unknown
from heshare.shared.yaml_nodes import read_values


@cache
def _profiles() -> dict[str, dict[str, Any]]:
    values = read_values(params.folder() / "profiles.yaml", "the notebooks' profiles", "Correct the file.")
    return {str(name): value or {} for name, value in values.items()}


def check_profile(profile: str) -> None:
    """Raise `InputError` unless there is such a profile."""
    known = params.PROFILES
    if profile not in known:
        raise unknown(profile, known, column="profile")


def profile_parameters(notebook: Notebook, profile: str) -> dict[str, Any]:
    """Return all parameters of a notebook in a profile.

    Raises:
        InputError: the profile has a parameter that the notebook does not have, or of another type.
    """
    of_profile = _profiles().get(profile, {}).get(notebook.name, {})
    return {**notebook.defaults, **params.check(notebook, of_profile), "profile": profile}


def expected_parameters(notebook: Notebook, profile: str) -> dict[str, Any]:
    """Return `profile_parameters` with the defaults that the notebook has in the commit."""
    replaced = _profiles().get(profile, {}).get(notebook.name, {})
    defaults = {name: value for name, value in params.committed_defaults(notebook).items() if name not in replaced}
    return {**profile_parameters(notebook, profile), **defaults}


def longest() -> list[str]:
    """Return the names of the longest notebooks, in the order in which they start."""
    return list(_profiles()["order"]["longest"])

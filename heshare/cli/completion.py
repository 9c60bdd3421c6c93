"""Shell completion of names: `heshare --install-completion`."""

from collections.abc import Iterable

from heshare.shared.errors import HeShareError


def policy_names(incomplete: str) -> list[str]:
    """Return the policies that begin so."""
    from heshare.policies.registry import policies

    return _beginning(policies(variants=True), incomplete)


def gpu_names(incomplete: str) -> list[str]:
    """Return the GPUs that begin so."""
    from heshare.world.catalogue import gpus

    return _beginning(gpus(), incomplete)


def clusters(incomplete: str) -> list[str]:
    """Return the clusters that begin so: the last of them, such as `V` in `4xT4,2xV`, becomes a GPU's name."""
    before, comma, last = incomplete.rpartition(",")
    count, _, name = last.rpartition("x") if "x" in last else ("1", "", last)
    return [f"{before}{comma}{count}x{gpu}" for gpu in gpu_names(name)]


def model_names(incomplete: str) -> list[str]:
    """Return the models that begin so."""
    from heshare.world.catalogue import models

    return _beginning(models(), incomplete)


def notebook_names(incomplete: str) -> list[str]:
    """Return the notebooks that begin so; none without a checkout."""
    from heshare.paper.notebooks import notebook_parameters

    try:
        return _beginning((path.stem for path in notebook_parameters.find()), incomplete)
    except HeShareError:
        return []


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.lower().startswith(incomplete.lower())]

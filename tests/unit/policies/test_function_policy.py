"""A policy from one function; and the examples of `docs/policies.md`, which keep the contract."""

import pytest

import heshare as hs
from heshare.lab.sweeps.grid import make_grid
from heshare.lab.sweeps.sweep import sweep
from heshare.policies import registry
from heshare.policies.function_policy import policy
from heshare.policies.policy import Start, Traits
from heshare.shared.disk_cache import NotCachedWarning
from heshare.shared.errors import InputError


@pytest.fixture
def register_policy():
    """Return a function that registers a policy until the end of the test."""
    names = []

    def register(name, decide, **declared):
        names.append(name)
        return policy(name, **declared)(decide)

    yield register
    for name in names:
        registry.unregister(name)


def first_gpu(event, view, predictions):
    free = not len(view.gpus[0].running)
    return [Start(task.id, 0) for task in view.waiting[:1] if free]


def test_registration(register_policy):
    """A function is registered as a policy."""
    register_policy("first", first_gpu, title="First")
    assert registry.title("first") == "First"
    assert registry.make("first").traits == Traits(False, False, False)
    assert "first" in hs.policy_names()
    frame = hs.compare(4, "T4,A100", ["first", "random"], seeds=1)
    assert frame["title"].tolist() == ["First", "Random"]
    assert (frame["avg_jct_s"] > 0).all()


MODULE = """from heshare.policies.function_policy import policy
from heshare.policies.policy import Start


@policy("by-module")
def decides(event, view, predictions):
    return [Start(task.id, 0) for task in view.waiting[:1] if not view.gpus[0].running]


def needs(cap, rate):
    return None
"""


def test_module_and_function(tmp_path, monkeypatch):
    """`module:function` names a function policy; a function that needs arguments is refused."""
    (tmp_path / "by_module.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert hs.run(2, "T4", "by_module:decides").policy == "by_module:decides"
        with pytest.raises(InputError, match="by_module:needs, which needs cap, rate"):
            registry.make("by_module:needs")
    finally:
        registry.unregister("by-module")


def test_replacement(register_policy):
    """A policy replaces itself, but none of the package."""
    register_policy("first", first_gpu)
    register_policy("first", first_gpu, title="Second")
    assert registry.title("first") == "Second"
    with pytest.raises(InputError, match="twice"):
        register_policy("random", first_gpu)
    registry.unregister("random")
    assert "random" in registry.policies()


def test_not_kept(register_policy, tmp_path, monkeypatch, kept_cells):
    """Runs of a function without a file are not kept."""
    register_policy("first", first_gpu)
    assert len(sweep(make_grid("first", "T4", 2, seeds=1), folder=tmp_path)) == 1
    assert len(list(tmp_path.rglob("*.json"))) == 1
    cell = {"__name__": "__main__", "first_gpu": first_gpu}
    exec("def of_a_cell(event, view, predictions):\n    return first_gpu(event, view, predictions)", cell)
    register_policy("first", cell["of_a_cell"])
    with pytest.warns(NotCachedWarning, match="of_a_cell"):
        assert len(sweep(make_grid("first", "T4", 2, seeds=1), folder=tmp_path)) == 1
    assert len(list(tmp_path.rglob("*.json"))) == 1

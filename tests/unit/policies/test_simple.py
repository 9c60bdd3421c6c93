"""A policy from one function, and the guide: its example joins the comparison and passes the contract."""

import re

import pytest

import heshare as hs
from heshare.errors import InputError
from heshare.files import root
from heshare.policies import registry
from heshare.policies.policy import Start, Traits
from heshare.policies.simple import policy
from heshare.running.grid import Grid
from heshare.running.sweep import sweep
from heshare.testing.policies import PolicyContract, check_policy

GUIDE = root() / "docs" / "policies.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), flags=re.DOTALL)


@pytest.fixture
def mine():
    """Registers functions under names that are freed afterwards."""
    names = []

    def enter(name, decide, **declared):
        names.append(name)
        return policy(name, **declared)(decide)

    yield enter
    for name in names:
        registry.forget(name)


def first_gpu(event, view, beliefs):
    free = not len(view.gpus[0].running)
    return [Start(task.id, 0) for task in view.waiting[:1] if free]


def test_the_guides_examples_run_and_keep_the_contract(capsys):
    assert len(EXAMPLES) == 2
    try:
        for code in EXAMPLES:
            exec(compile(code, str(GUIDE), "exec"), {"__name__": "guide"})
    finally:
        registry.forget("duo")
    said = capsys.readouterr().out
    assert "Duo" in said
    assert said.count("holds:") == sum(name.startswith("test_") for name in vars(PolicyContract))


def test_the_guides_policy_has_twenty_lines():
    body = EXAMPLES[0][EXAMPLES[0].index("import heshare") :].split("\n\n\nprint")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20


def test_a_function_is_a_policy_like_any_other(mine):
    mine("first", first_gpu, title="First")
    assert registry.title("first") == "First"
    assert registry.make("first").traits == Traits(False, False, False)
    assert "first" in hs.policy_names()
    frame = hs.compare(4, "T4,A100", ["first", "random"], seeds=1)
    assert frame["title"].tolist() == ["First", "Random"]
    assert (frame["avg_jct_s"] > 0).all()


def test_registered_again_it_takes_its_own_place_and_not_that_of_a_system(mine):
    mine("first", first_gpu)
    mine("first", first_gpu, title="Second")
    assert registry.title("first") == "Second"
    with pytest.raises(InputError, match="twice"):
        mine("random", first_gpu)
    registry.forget("random")
    assert "random" in registry.policies()


def test_kept_results_belong_to_the_file_that_the_function_is_in(mine, tmp_path, monkeypatch):
    mine("first", first_gpu)
    grid = Grid(policies=("first",), clusters=("T4",), tasks=(2,), seeds=1)
    assert len(sweep(grid, folder=tmp_path)) == 1
    monkeypatch.setattr(first_gpu, "__module__", "a_notebook")
    mine("first", first_gpu)
    assert len(sweep(grid)) == 1
    with pytest.raises(InputError, match="a_notebook, which has no file"):
        sweep(grid, folder=tmp_path)


def test_a_false_declaration_is_noticed(mine):
    mine("first", first_gpu, frequency=True)
    with pytest.raises(AssertionError):
        check_policy(lambda: registry.make("first"))

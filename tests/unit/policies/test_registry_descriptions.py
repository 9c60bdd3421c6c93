"""Descriptions of policies with parameters: parsing, canonical form, titles, errors."""

import pytest

from heshare.policies.heshare import HeShare
from heshare.policies.registry import canonical, make, parameters_of, policies, title
from heshare.scheduling.settings import Settings
from heshare.shared.errors import InputError


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("morak()", "morak"),
        (" morak( k = 3 , cap=0.7 ) ", "morak(cap=0.7,k=3)"),
        ("morak(k=2,cap=0.80)", "morak"),
        ("morak(limit=2)", "morak(limit=2.0)"),
        ("mu-serve:oracle(mode=feedback)", "mu-serve:oracle(mode=feedback)"),
        ("mu-serve:oracle(mode=oracle)", "mu-serve:oracle"),
        ("morak(elastic=on)", "morak(elastic=yes)"),
        ("heshare:en-opt(mps_pcts=50/100,clocks=3)", "heshare:en-opt(clocks=3,mps_pcts=50/100)"),
    ],
)
def test_canonical(text, description):
    """The canonical description is the name of the policy; a title lists changed parameters."""
    assert title("morak(k=3,cap=0.7)") == "Morak (cap 0.7, k 3)"
    assert title("unregistered(k=2)") == "unregistered(k=2)"
    assert canonical(text) == description
    assert make(text).name == description
    assert canonical(description) == description


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("morak(capp=0.7)", "cap, dt_s, elastic"),
        ("random(k=2)", "none at all"),
        ("morak(k=2.5)", "expected a whole number"),
        ("morak(cap=high)", "expected a number"),
        ("morak(cap=nan)", "expected a number"),
        ("morak(elastic=perhaps)", "expected yes or no"),
        ("heshare:en-opt(mps_pcts=10/x)", "whole numbers with /"),
        ("heshare:en-opt(mps_pcts=10/20)", "ascending percentages"),
        ("heshare:en-opt(placement=sensitivity)", "heshare or random"),
        ("morak(k=2,k=3)", "k twice"),
        ("morak(k)", "parameters such as cap=0.7"),
        ("morak(k=2", "a name, or a name with parameters"),
        ("morrak(k=2)", "Did you mean .morak."),
    ],
)
def test_refusals(text, message):
    """A bad description is refused in one line."""
    with pytest.raises(InputError, match=message) as error:
        make(text)
    assert "\n" not in str(error.value)


def test_parameters():
    """Parameters reach the settings; plans by the paper's words have the literal settings."""
    policy = make("heshare:jct-opt(population=12,recovery=no,overload=1)")
    assert isinstance(policy, HeShare)
    assert (policy.choice, policy.settings.population, policy.settings.recovery) == (
        "jct-opt",
        12,
        False,
    )
    assert policy.settings.overload == 1.0

    for choice in ("trade-off", "en-opt", "jct-opt"):
        literal = make(f"heshare:{choice}/literal")
        assert isinstance(literal, HeShare)
        assert (literal.choice, literal.settings) == (choice, Settings.literal())


def test_variants():
    """Variants are registered but not listed."""
    variants = {name for name, entry in policies(variants=True).items() if entry.variant}
    assert variants >= {"morak:heshare-placement", "heshare:trade-off/no-mps"}
    assert not variants & set(policies())


def test_defaults():
    """Parameters are the defaults that a description can contain."""

    def factory(*, k: int = 2, planner: object = None, shares: tuple[int, ...] = (1, 2), rest: tuple[str] = ("a",)):
        return k, planner, shares, rest

    assert dict(parameters_of(factory)) == {"k": 2, "shares": (1, 2)}

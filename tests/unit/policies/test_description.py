"""Policies with parameters: how they are written, read, named, and refused."""

import pytest

from heshare.errors import InputError
from heshare.policies import description
from heshare.policies.heshare import HeShare
from heshare.policies.registry import canonical, make, policies, title


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("morak", "morak"),
        ("morak()", "morak"),
        (" morak( k = 3 , cap=0.7 ) ", "morak(cap=0.7,k=3)"),
        ("morak(k=2,cap=0.80)", "morak"),
        ("morak(limit=2)", "morak(limit=2.0)"),
        ("morak:search(mode=feedback)", "morak:search(mode=feedback)"),
        ("morak:search(mode=search)", "morak:search"),
        ("mu-serve(remember=off)", "mu-serve(remember=no)"),
        ("heshare:en-opt(mps_pcts=50/100,clocks=3)", "heshare:en-opt(clocks=3,mps_pcts=50/100)"),
        ("heshare:trade-off/no-clock(population=10)", "heshare:trade-off/no-clock(population=10)"),
    ],
)
def test_there_is_one_way_to_write_a_policy_and_it_is_its_name(text, written):
    assert canonical(text) == written
    assert make(text).name == written
    assert canonical(written) == written


def test_the_title_says_what_was_changed():
    assert title("morak(k=3,cap=0.7)") == "Morak (cap 0.7, k 3)"
    assert title("morak(k=2)") == "Morak"
    assert title("somebody's(k=2)") == "somebody's(k=2)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("morak(capp=0.7)", "found parameter 'capp' of morak; expected one of its parameters: alpha, beta, cap"),
        ("random(k=2)", "none at all"),
        ("morak(k=2.5)", "found k=2.5 of morak; expected a whole number, such as 2"),
        ("morak(cap=high)", "expected a number, such as 0.8"),
        ("morak(cap=nan)", "expected a number"),
        ("mu-serve(remember=perhaps)", "expected yes or no"),
        ("heshare:en-opt(mps_pcts=10/x)", "whole numbers with /"),
        ("heshare:en-opt(mps_pcts=10/20)", "ascending percentages from 1 that end with 100"),
        ("heshare:en-opt(placement=sensitivity)", "heshare or random"),
        ("morak(k=2,k=3)", "k twice"),
        ("morak(k)", "parameters such as cap=0.7"),
        ("morak(k=2", "a name, or a name with parameters"),
        ("morrak(k=2)", "one of random, sched-only"),
    ],
)
def test_what_is_wrong_gets_one_message(text, message):
    with pytest.raises(InputError, match=message) as caught:
        make(text)
    assert "\n" not in str(caught.value)


def test_parameters_reach_the_settings():
    made = make("heshare:jct-opt(population=12,recovery=no,overload=1)")
    assert isinstance(made, HeShare)
    assert (made.choice, made.planner.settings.population, made.planner.settings.recovery) == ("jct-opt", 12, False)
    assert made.planner.settings.overload == 1.0


def test_variants_are_made_by_name_and_stay_out_of_the_systems():
    assert set(policies()) < set(policies(variants=True))
    assert {name for name, entry in policies(variants=True).items() if entry.variant} >= {
        "morak:heshare-placement",
        "mu-serve:sensitivity",
        "heshare:trade-off/no-mps",
    }
    assert not any(":" in name for name in policies() if name.startswith(("morak", "mu-serve")))


def test_only_what_text_can_say_is_a_parameter():
    def factory(*, k: int = 2, planner: object = None, shares: tuple[int, ...] = (1, 2), rest: tuple[str] = ("a",)):
        return k, planner, shares, rest

    assert dict(description.parameters_of(factory)) == {"k": 2, "shares": (1, 2)}

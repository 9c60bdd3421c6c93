"""The paper's claims that a live comparison tests, by the GPUs, policies and clocks that it had."""

from __future__ import annotations

from heshare.ops.live.live_comparison import POLICIES
from heshare.paper.studies import live_results
from heshare.policies.registry import make


def test_coverage():
    """Which claims are tested depends on GPUs and clocks."""
    h100 = live_results.coverage({"H100"}, POLICIES, clocks=False, emulated=False)
    tested = h100.set_index("id")["tested"]
    assert set(live_results.untested_for_clocks(h100)) >= {"M5", "H1", "H5", "O3"}
    assert tested["S1"] == tested["E1"] == "no"
    paper = live_results.coverage({"T4", "V100", "A100"}, POLICIES, clocks=True, emulated=False)
    assert dict(zip(paper["id"], paper["tested"], strict=True))["H1"] == "yes"
    assert live_results.untested_for_clocks(paper) == []
    clocked = live_results.coverage({"H100"}, POLICIES, clocks=True, emulated=False).set_index("id")["tested"]
    assert clocked["H1"] == live_results.ELSEWHERE
    assert clocked["M1"] == "no"


def test_needs():
    """Requirements name known claims and policies."""
    assert set(live_results.NEEDS) <= {claim.id for claim in live_results.paper_claims().values()}
    for need in live_results.NEEDS.values():
        assert all(make(name).name == name for name in need.policies)

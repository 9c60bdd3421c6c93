"""Names, units and kinds of metrics by Prometheus' conventions; the dashboard and the page use metrics that exist."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition, parser
from prometheus_client.parser import text_string_to_metric_families
from support.run_entries import run_of, sampled, started, state_of

from heshare.ops.jobs.entries import Account, Session, SessionGpu
from heshare.ops.jobs.run_state import FAULTS, RunState
from heshare.ops.views.metric_catalogue import METRICS
from heshare.ops.views.run_meter import RunMeter

UNITS = {"joules", "watts", "hertz", "seconds", "ratio"}
QUERIED = {spec.sample_name for spec in METRICS}


def meter(state, tmp_path, *, active=True):
    made = RunMeter('odd "name"\\', tmp_path / "x.prom")
    made.state, made.active = state, active
    return made


def busy_state():
    """A run of two jobs on one of two GPUs, with everything known."""
    shares = {"shares_j": {"a": 30.0, "b": 30.0}, "model_shares_j": {"a": 40.0, "b": 20.0}}
    account = Account(60.0, **shares, sm_mhz=900.0, power_w=60.0, requested_mhz=1000)
    gpus = tuple(SessionGpu(f"GPU-{index}", "T4") for index in range(2))
    return state_of(
        run_of(3, power_limit=[[0.0, 900.0], [1.0, 700.0]]),
        Session(2000.0, gpus),
        started("a", "b", lasted_s=0.1),
        sampled(1.0, account, replace(account, shares_j={}, model_shares_j={})),
    )


def test_every_metric_has_a_value_in_a_busy_run_and_both_parsers_accept_them(tmp_path):
    text = generate_latest(meter(busy_state(), tmp_path)).decode()
    found = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    assert found == QUERIED
    openmetrics = exposition.generate_latest(meter(busy_state(), tmp_path)).decode()
    by_name = {family.name: family for family in parser.text_string_to_metric_families(openmetrics)}
    assert {(spec.name, spec.kind, spec.unit) for spec in METRICS} == {
        (family.name, family.type, family.unit) for family in by_name.values()
    }
    for spec in METRICS:
        for sample in by_name[spec.name].samples:
            assert set(sample.labels) == {"run", *spec.labels}
            assert sample.labels["run"] == 'odd "name"\\'


def test_a_run_that_has_not_begun_is_accepted_by_the_parser(tmp_path):
    text = exposition.generate_latest(meter(RunState(), tmp_path, active=False)).decode()
    assert "heshare_run_active" in text
    assert list(parser.text_string_to_metric_families(text))


@pytest.mark.parametrize("spec", METRICS, ids=lambda spec: spec.name)
def test_names_follow_the_conventions(spec):
    assert re.fullmatch(r"heshare_[a-z][a-z_]*[a-z]", spec.name)
    assert not spec.name.endswith(("_total", "_count", "_sum", "_bucket", "_info"))
    assert spec.unit in UNITS | {""}
    assert spec.name.endswith(f"_{spec.unit}") if spec.unit else not set(spec.name.split("_")) & UNITS
    assert all(re.fullmatch(r"[a-z_]+", label) for label in spec.labels)
    assert not {"job", "instance"} & set(spec.labels)  # Prometheus sets these itself
    assert spec.about.endswith(".")
    assert spec.about[0].isupper() or spec.about[0].isdigit()


def test_values_are_in_base_units(tmp_path):
    text = generate_latest(meter(busy_state(), tmp_path)).decode()
    assert re.search(r'heshare_gpu_clock_reached_hertz\{gpu="0".*\} 9e\+08', text)
    assert re.search(r'heshare_job_mps_share_ratio\{.*job_name="a".*\} 0.5', text)
    assert re.search(r'heshare_job_power_watts\{.*job_name="a".*way="model"\} 40.0', text)
    assert 'heshare_run_power_limit_watts{run="odd \\"name\\"\\\\"} 700.0' in text
    assert len(re.findall(r"(?m)^heshare_faults_total\{", text)) == len(FAULTS)


def queries(node):
    """Every query of a dashboard, with the titles of its panels."""
    if isinstance(node, dict):
        texts = [node[key] for key in ("expr", "query", "definition") if isinstance(node.get(key), str)]
        yield from (text for text in texts if "heshare" in text)
        node = list(node.values())
    for child in node if isinstance(node, list) else []:
        yield from queries(child)


def test_every_query_of_the_dashboard_and_the_alerts_names_metrics_that_exist(checkout):
    dashboard = json.loads((checkout / "docs/grafana/heshare.json").read_text("utf-8"))
    texts = list(queries(dashboard))
    assert len(texts) >= 12
    page = (checkout / "docs/accounting.md").read_text("utf-8")
    alerts = (checkout / "docs/grafana/alerts.yaml").read_text("utf-8")
    texts += re.findall(r"(?m)^\s*(?:- )?expr: (.*)$", alerts) + re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
    labels = {"run", *(label for spec in METRICS for label in spec.labels)}
    for text in texts:
        names = set(re.findall(r"\bheshare_\w+", text))
        assert names, text
        assert names <= QUERIED, text
        used = re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", text) + re.findall(r"\bby \(([^)]*)\)", text)
        assert {name.strip() for group in used for name in group.split(",")} <= labels, text
    used = {name for text in texts for name in re.findall(r"\bheshare_\w+", text)}
    assert QUERIED - used <= {"heshare_run_start_time_seconds"}


def test_page_lists_every_metric_with_its_labels(checkout):
    page = (checkout / "docs/accounting.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| `(heshare_\w+)` \| (\w+) \| ([^|]*) \|", page)
    assert [
        (name, kind, [label.strip("` ") for label in labels.split(",") if label.strip()]) for name, kind, labels in rows
    ] == [(spec.sample_name, spec.kind, list(spec.labels)) for spec in METRICS]

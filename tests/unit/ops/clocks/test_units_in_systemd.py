"""The units of docs/systemd in a running systemd: a run of jobs, its end, its stop, a kill, and the groups of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.private_systemd import NoSystemdError, PrivateSystemd

pytestmark = pytest.mark.slow
RUN = "heshare-run@{}.service"
JOB = "  - {{name: {name}, command: [sh, -c, '{shell}'], like: 'resnet50:8', iterations: 100, count: {count}}}\n"


@pytest.fixture(scope="module")
def systemd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSystemd]:
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(PrivateSystemd(tmp_path_factory.mktemp("systemd")))
        except NoSystemdError as error:
            pytest.skip(f"no systemd of its own on this machine: {error}")
        yield opened


def begin(systemd: PrivateSystemd, name: str, *jobs: str) -> str:
    systemd.write(f"etc/heshare/{name}.yaml", "jobs:\n" + "".join(jobs))
    systemd.run("systemctl", "start", RUN.format(name))
    return RUN.format(name)


def state(systemd: PrivateSystemd, unit: str) -> tuple[str, ...]:
    return tuple(systemd.show(unit, name) for name in ("ActiveState", "Result", "NRestarts"))


def output(systemd: PrivateSystemd, name: str, job: str) -> str:
    path = systemd.root / f"var/lib/heshare/{name}/run/outputs/{job}.1.log"
    return path.read_text() if path.exists() else ""


def journal(systemd: PrivateSystemd, name: str) -> str:
    path = systemd.root / f"var/lib/heshare/{name}/run/journal.jsonl"
    return path.read_text() if path.exists() else ""


def test_a_run_runs_its_jobs_once_each_in_a_group_of_its_own(systemd: PrivateSystemd) -> None:
    unit = begin(systemd, "night", JOB.format(name="a", shell="cat /proc/self/cgroup; sleep 1", count=3))
    systemd.wait(lambda: systemd.show(unit, "ActiveState") not in ("active", "activating", "deactivating"))
    assert state(systemd, unit) == ("inactive", "success", "0"), systemd.log()
    assert "a-0,completed" in (systemd.root / "var/lib/heshare/night/run/jobs.csv").read_text()
    assert '"clock"' in journal(systemd, "night"), "the clock service has set clocks"
    groups = [output(systemd, "night", f"a-{number}") for number in range(3)]
    assert len(set(groups)) == 3
    assert all(f"/{unit}/job-" in group for group in groups), groups
    systemd.run("systemctl", "start", unit)
    systemd.wait(lambda: systemd.show(unit, "ActiveState") == "inactive")
    assert state(systemd, unit) == ("inactive", "success", "0"), "a complete run ends once"
    assert journal(systemd, "night").count('"end"') == 3


def test_a_stop_leaves_no_failed_unit_and_nothing_that_a_job_started(systemd: PrivateSystemd) -> None:
    stray = "env -i setsid sleep 4321 & kill -9 $PPID; sleep 60"
    jobs = JOB.format(name="stray", shell=stray, count=1), JOB.format(name="long", shell="sleep 60", count=1)
    unit = begin(systemd, "stopped", *jobs)
    systemd.wait(lambda: "stray: attempt 1 failed" in systemd.log())
    assert "sleep 4321" not in systemd.run("ps", "-eo", "args"), "it has ended with its job, whoever killed its reaper"
    systemd.run("systemctl", "stop", unit)
    assert state(systemd, unit) == ("inactive", "success", "0"), systemd.log()
    assert "SIGTERM" in journal(systemd, "stopped")
    assert systemd.run("sh", "-c", "ls /var/lib/heshare/stopped/heshare || :").split() == []


def test_a_killed_run_is_continued_by_systemd(systemd: PrivateSystemd) -> None:
    unit = begin(systemd, "killed", JOB.format(name="a", shell="sleep 2", count=1))
    systemd.wait(lambda: '"start"' in journal(systemd, "killed"))
    systemd.run("systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit)
    report = systemd.root / "var/lib/heshare/killed/run/jobs.csv"
    systemd.wait(report.exists)
    systemd.wait(lambda: state(systemd, unit)[:2] == ("inactive", "success"))
    assert "a,completed" in report.read_text()
    assert journal(systemd, "killed").count('"session"') == 2

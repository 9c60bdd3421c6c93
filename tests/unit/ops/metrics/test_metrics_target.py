"""Where `--metrics` goes: files and addresses, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from heshare.cli import app
from heshare.ops.metrics.metrics_target import HttpAddress, parse_target, write_textfile
from heshare.shared import extras
from heshare.shared.errors import InputError

CLI = CliRunner()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9400", "127.0.0.1", 9400),
        (":9400", "127.0.0.1", 9400),
        ("0.0.0.0:9400", "0.0.0.0", 9400),
        ("[::1]:0", "::1", 0),
        ("node7.example.org:80", "node7.example.org", 80),
    ],
)
def test_an_address_without_a_host_is_the_loopback(text, host, port):
    assert parse_target(text) == HttpAddress(host, port)


def test_a_file_ends_with_prom(tmp_path):
    assert parse_target(str(tmp_path / "run.prom")) == tmp_path / "run.prom"
    (tmp_path / "folder.prom").mkdir()
    for wrong in ("run.txt", "9400", str(tmp_path / "folder.prom"), "h:123456"):
        with pytest.raises(InputError, match=r"expected a file FILE\.prom"):
            parse_target(wrong)
    with pytest.raises(InputError, match="expected a port up to 65535"):
        parse_target("h:65536")


def test_textfile_is_replaced_whole_and_nothing_else_ends_with_prom(tmp_path, monkeypatch):
    path = tmp_path / "run.prom"
    write_textfile(path, b"first\n")
    seen = []
    replace = Path.replace

    def replace_seen(self, target):
        seen.extend(sorted(file.name for file in tmp_path.glob("*.prom")))
        assert path.read_bytes() == b"first\n"
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replace_seen)
    write_textfile(path, b"second\n")
    assert seen == ["run.prom"]
    assert path.read_bytes() == b"second\n"
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(30, "read-only")))
    with pytest.raises(OSError, match="read-only"):
        write_textfile(path, b"third\n")
    assert [file.name for file in tmp_path.iterdir()] == ["run.prom"]
    assert path.read_bytes() == b"second\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--metrics", "x.txt"], "found 'x.txt'; expected a file FILE.prom"),
        (["--metrics", "127.0.0.1:9400"], "127.0.0.1:9400 with emulated GPUs; expected a file FILE.prom"),
        (["jobs.yaml", "--devices", "nvml", "--dry-run", "--metrics", "x.prom"], "--metrics with --dry-run"),
        (["--metrics", "/dev/null/x.prom"], "/dev/null, which is a file"),
    ],
)
def test_run_refuses_metrics_that_mean_nothing(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    done = CLI.invoke(app, ["run", "--tasks", "2", "--cluster", "1xT4", "--policy", "sjf", *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(extras.__dict__, "find_spec", lambda name: None if name == "prometheus_client" else name)
    done = CLI.invoke(app, ["run", "--tasks", "2", "--cluster", "1xT4", "--policy", "sjf", "--metrics", "x.prom"])
    assert done.exit_code == 2
    assert "pip install 'heshare[metrics]'" in done.stderr


def test_emulated_run_of_jobs_writes_its_metrics(tmp_path):
    (tmp_path / "jobs.yaml").write_text("jobs: [{name: j, command: ['true'], like: low, expected_time_s: 5, count: 2}]")
    words = ["run", str(tmp_path / "jobs.yaml"), "--cluster", "1xT4", "--policy", "sjf", "--metrics"]
    assert CLI.invoke(app, [*words, str(tmp_path / "x.prom")]).exit_code == 0
    assert 'job_name="j-1"' in (tmp_path / "x.prom").read_text()

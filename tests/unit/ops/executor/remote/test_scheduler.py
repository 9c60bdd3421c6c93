"""Who can connect to the Dask scheduler of hosts, with real certificates, schedulers and workers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import dask
import pytest
from support import dask_cluster
from support.fakenvml import compiler

from heshare.ops.executor.remote import host_offers, scheduler
from heshare.shared.errors import InputError

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make certificates with")
UUID = "GPU-aaaaaaaa-1111-2222-3333-444444444440"


def certificates(folder: Path) -> dict[str, str]:
    """Return Dask's settings for a new key and certificate in a folder, by their names."""
    folder.mkdir()
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365", "-subj", "/CN=heshare"]
    subprocess.run([*made, "-keyout", "key", "-out", "cert"], cwd=folder, check=True, capture_output=True)
    roles = {
        f"distributed.comm.tls.{role}.{part}": str(folder / part)
        for role in ("client", "scheduler", "worker")
        for part in ("key", "cert")
    }
    return {"distributed.comm.tls.ca-file": str(folder / "cert"), **roles}


def set_environment(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv("DASK_" + name.upper().replace(".", "__").replace("-", "_"), value)


def test_run_on_hosts_over_tls_and_no_client_without_their_certificate(tmp_path, monkeypatch):
    if compiler() is None:
        pytest.skip("no C compiler to build the stand-in for libnvidia-ml.so.1 with")
    ours, others = certificates(tmp_path / "ours"), certificates(tmp_path / "others")
    set_environment(monkeypatch, ours)
    with dask_cluster.scheduler(tmp_path, "--protocol", "tls") as address:
        assert address.startswith("tls://")
        cluster = dask_cluster.Cluster(address, tmp_path)
        cluster.join("alpha", uuid=UUID)
        try:
            with dask.config.set(ours):
                cluster.joined(1)
                result = cluster.run(JOBS, "run")
            assert result.complete
            with pytest.raises(InputError, match=r"tls://.* without certificates; expected distributed\.comm\.tls"):
                connected(address)
            with dask.config.set(others), pytest.raises(InputError, match="where no scheduler responds"):
                connected(address)
            with pytest.raises(InputError, match="where no scheduler responds"):
                connected(address.replace("tls://", "dask://"))
        finally:
            cluster.end()


JOBS = "jobs:\n  - {name: a, command: ['true'], like: 'resnet50:8', iterations: 100}\n"


def connected(address: str) -> None:
    with host_offers.connect(address, timeout_s=2.0):
        pass


def test_certificates_that_cannot_be_loaded_are_named(tmp_path):
    settings = certificates(tmp_path / "ours")
    (tmp_path / "ours" / "key").write_text("no key")
    with dask.config.set(settings), pytest.raises(InputError, match="certificates that cannot be loaded"):
        connected("tls://127.0.0.1:1")


@pytest.mark.parametrize(
    "address", ["dask://head:8786", "dask://10.0.0.1:8786", "dask://0.0.0.0:1", "dask://[fe80::1]:1"]
)
def test_addresses_without_tls_on_a_network_are_refused(address):
    message = rf"connection without TLS over a network.*insecure://{address[7:].replace('[', '.').replace(']', '.')}"
    with pytest.raises(InputError, match=f"column --hosts: .*{message}"):
        connected(address)


@pytest.mark.parametrize(
    "address", ["dask://127.0.0.1:1", "dask://localhost:1", "dask://[::1]:1", "insecure://head:1", "tls://head:1"]
)
def test_addresses_with_tls_of_this_machine_and_insecure_ones_are_accepted(address):
    scheduler.check_address(address, "--hosts")

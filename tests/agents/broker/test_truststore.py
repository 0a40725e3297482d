"""Java reads what we write."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from headgate.agents.broker.truststore import PASSWORD, java_options


def test_java_finds_every_authority_that_python_trusts(tmp_path: Path) -> None:
    """Asked with Java's own tool."""
    keytool = shutil.which("keytool")
    if keytool is None:
        pytest.skip("this Java has no keytool")
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    options = java_options(tmp_path / "store.jks")
    if not trusted:
        assert options == []
        return
    assert options[0] == f"-Djavax.net.ssl.trustStore={tmp_path / 'store.jks'}"
    told = subprocess.run(
        [keytool, "-list", "-keystore", str(tmp_path / "store.jks"), "-storetype", "JKS", "-storepass", PASSWORD],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"contains {len(trusted)} entr" in told.stdout

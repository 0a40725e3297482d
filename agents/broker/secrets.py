"""Makes an embedded broker secure: certificates, users and permissions, created for one data directory.

Decides: a certificate authority; a certificate for the broker (`headgate-broker`) and one for its owner (`headgate-admin`), who uses the
ADMIN listener; the SCRAM users of `USERS`, who use the CLIENT listener with TLS and a password; and the permissions of each. Promises: only
the owner can read the files, and they are of no use for any other broker.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
from pathlib import Path

from ...core import properties
from ...core.errors import EnvironmentFault
from .acls import Acl
from .java import Java

USERS = {
    "admin": "may do everything",
    "app": "may create and use every topic, group and transactional id",
    "reader": "may read every topic",
    "stranger": "may do nothing",
}
ITERATIONS = 4096


def default_acls() -> list[Acl]:
    """The permissions of `app` and `reader`. `admin` is a super user, `stranger` has none."""
    everything = [Acl("app", kind, "*", "all") for kind in ("topic", "group", "transactional_id")]
    cluster = [
        Acl("app", "cluster", "kafka-cluster", operation) for operation in ("create", "describe", "idempotent_write")
    ]
    reading = [Acl("reader", kind, "*", operation) for kind in ("topic", "group") for operation in ("read", "describe")]
    return everything + cluster + reading


def make_secrets(directory: Path) -> None:
    """Write certificates, passwords and client settings below `directory`, once."""
    if (directory / "users.json").exists():
        return
    try:
        import trustme
    except ImportError as error:
        raise EnvironmentFault(
            "--secure needs trustme for its certificates", remedy="pip install 'headgate[secure]'"
        ) from error
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = trustme.CA(organization_name="headgate temporary authority")
    _write(directory / "ca.pem", authority.cert_pem.bytes())
    for name in ("broker", "admin"):
        issued = authority.issue_cert("127.0.0.1", "localhost", common_name=f"headgate-{name}")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        _write(directory / f"{name}.pem", _pkcs8(issued.private_key_pem.bytes()) + chain)
    _write(directory / "users.json", json.dumps({user: secrets.token_urlsafe(18) for user in USERS}, indent=2).encode())


def _pkcs8(key: bytes) -> bytes:
    """The key in PKCS #8, the only form that Kafka reads from PEM."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    return load_pem_private_key(key, None).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes) -> None:
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)


def passwords(directory: Path) -> dict[str, str]:
    """The password of every user."""
    return json.loads((directory / "users.json").read_text())


def client_settings(directory: Path, user: str, bootstrap: str) -> dict[str, str]:
    """The settings for a client of this user, by their names in the Java client."""
    password = passwords(directory)[user]
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }


def write_client_properties(directory: Path, bootstrap: str) -> None:
    """Write one `USER.properties` for each user, at each start, because the ports may change."""
    for user in USERS:
        lines = [properties.line(name, value) for name, value in client_settings(directory, user, bootstrap).items()]
        _write(directory / f"{user}.properties", ("\n".join(lines) + "\n").encode(properties.ENCODING))


def checkpoint_with_users(directory: Path, server: Path, cluster_id: str, *, java: Java, jars: str) -> bytes:
    """The first metadata of a cluster with our users: Kafka's own tool formats a scratch directory, and this function takes its result.

    The tool gets salted passwords, because everyone on a machine can read command lines.
    """
    scratch = directory / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    try:
        lines = [line for line in server.read_text().splitlines() if not line.startswith("log.dirs=")]
        (scratch / "server.properties").write_text("\n".join([*lines, f"log.dirs={scratch / 'data'}"]) + "\n")
        command = [
            java.path,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dlog4j2.level=error",
            "-cp",
            jars,
            "kafka.tools.StorageTool",
        ]
        command += ["format", "-t", cluster_id, "-c", str(scratch / "server.properties")]
        for user, password in passwords(directory).items():
            for mechanism, algorithm in (("SCRAM-SHA-512", "sha512"), ("SCRAM-SHA-256", "sha256")):
                command += ["--add-scram", f"{mechanism}=[{_credential(user, password, algorithm)}]"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60
        )
        made = scratch / "data" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
        if done.returncode != 0 or not made.exists():
            raise EnvironmentFault(f"Kafka's storage tool failed: {(done.stderr or done.stdout).strip()[-500:]}")
        return made.read_bytes()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _credential(user: str, password: str, algorithm: str) -> str:
    import base64

    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, ITERATIONS)
    return f"name={user},iterations={ITERATIONS},salt={base64.b64encode(salt).decode()},saltedpassword={base64.b64encode(salted).decode()}"

"""The certificate authorities that this machine trusts, for a Java that was not installed on it.

A Java from PyPI has its own list and does not know the authority of a company or machine, so it would reject a mirror that pip reaches.
Decides: Python's list (the system's, including `SSL_CERT_FILE`) is written in Java's format. Promise: it contains only public certificates.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"
"""Not a secret: the format needs one for its checksum."""


def java_options(into: Path) -> list[str]:
    """Write the list to `into`, and return the options that make a Java use it; none if Python knows no authority."""
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    into.write_bytes(jks(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={into}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def jks(certificates: list[bytes]) -> bytes:
    """A Java key store (version 2) that contains these certificates (in DER) as trusted."""
    parts = [struct.pack(">III", 0xFEEDFEED, 2, len(certificates))]
    for number, certificate in enumerate(certificates):
        parts += [struct.pack(">I", 2), _utf(f"authority-{number}"), struct.pack(">q", 0), _utf("X.509")]
        parts += [struct.pack(">I", len(certificate)), certificate]
    content = b"".join(parts)
    return content + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def _utf(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw

"""Client settings: translates the names of the Java client and of librdkafka into aiokafka's.

    ClientSettings.parse("broker:9092", ["security.protocol=SASL_SSL", "sasl.username=ann", "sasl.password=…"])

Promises:

- An unknown setting is refused, and the error suggests the nearest known name. Values of the wrong type are refused too, and settings that
  headgate makes itself (transactional id, isolation, acknowledgements, …), because its guarantees depend on them.
- TLS takes PEM files or inline PEM under both families of names. A JKS or PKCS12 store is refused, and the error contains the commands
  that convert it.
- Secrets never appear in `repr`, in errors, or in `shown()`.
"""

from __future__ import annotations

import re
import shlex
import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...core.errors import EnvironmentFault, SettingError
from ...core.settings import did_you_mean, shown

_NOTHING: Mapping[str, str] = MappingProxyType({})


def mask(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings for people, without secrets, also inside of values."""
    return {name: shown(name, value) for name, value in settings.items()}


def _integer(name: str, text: str, *, scale: int = 1) -> int:
    try:
        return int(text) * scale
    except ValueError:
        raise SettingError(f"client setting {name} is not a whole number: {text!r}") from None


def _boolean(name: str, text: str) -> bool:
    low = text.strip().lower()
    if low not in ("true", "false"):
        raise SettingError(f"client setting {name} is neither true nor false: {text!r}")
    return low == "true"


def _string(name: str, text: str) -> str:
    return text


def _protocol(name: str, text: str) -> str:
    known = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    if text.upper() not in known:
        raise SettingError(f"client setting {name} is {text!r}", remedy=f"one of {', '.join(known)}")
    return text.upper()


def _mechanism(name: str, text: str) -> str:
    known = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI")
    if text.upper() not in known:
        raise SettingError(f"client setting {name} is {text!r}", remedy=f"one of {', '.join(known)}")
    return text.upper()


_Reader = Callable[[str, str], Any]
_ALL, _READ, _WRITE = "all", "consumer", "producer"
_PASSED: dict[str, tuple[str, str, _Reader]] = {
    # name: (which clients take it, aiokafka's name, how the text is parsed)
    "security.protocol": (_ALL, "security_protocol", _protocol),
    "sasl.mechanism": (_ALL, "sasl_mechanism", _mechanism),
    "sasl.mechanisms": (_ALL, "sasl_mechanism", _mechanism),
    "sasl.username": (_ALL, "sasl_plain_username", _string),
    "sasl.password": (_ALL, "sasl_plain_password", _string),
    "sasl.kerberos.service.name": (_ALL, "sasl_kerberos_service_name", _string),
    "client.id": (_ALL, "client_id", _string),
    "request.timeout.ms": (_ALL, "request_timeout_ms", _integer),
    "socket.timeout.ms": (_ALL, "request_timeout_ms", _integer),
    "retry.backoff.ms": (_ALL, "retry_backoff_ms", _integer),
    "metadata.max.age.ms": (_ALL, "metadata_max_age_ms", _integer),
    "topic.metadata.refresh.interval.ms": (_ALL, "metadata_max_age_ms", _integer),
    "connections.max.idle.ms": (_ALL, "connections_max_idle_ms", _integer),
    "client.rack": (_READ, "client_rack", _string),
    "check.crcs": (_READ, "check_crcs", _boolean),
    "fetch.max.bytes": (_READ, "fetch_max_bytes", _integer),
    "fetch.min.bytes": (_READ, "fetch_min_bytes", _integer),
    "fetch.max.wait.ms": (_READ, "fetch_max_wait_ms", _integer),
    "fetch.wait.max.ms": (_READ, "fetch_max_wait_ms", _integer),
    "max.partition.fetch.bytes": (_READ, "max_partition_fetch_bytes", _integer),
    "fetch.message.max.bytes": (_READ, "max_partition_fetch_bytes", _integer),
    "max.request.size": (_WRITE, "max_request_size", _integer),
    "message.max.bytes": (_WRITE, "max_request_size", _integer),
    "transaction.timeout.ms": (_WRITE, "transaction_timeout_ms", _integer),
}
_TLS = (
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem",
    "ssl.key.password", "ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.type", "ssl.keystore.location",
    "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.type", "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification", "ssl.cipher.suites",
)  # fmt: skip
_JAAS = "sasl.jaas.config"
OURS = {
    "bootstrap.servers": "give it with -b",
    "metadata.broker.list": "give it with -b",
    "transactional.id": "worker fencing depends on it",
    "enable.idempotence": "exactly-once processing depends on it",
    "acks": "exactly-once processing depends on it",
    "request.required.acks": "exactly-once processing depends on it",
    "isolation.level": "inputs are always read committed",
    "auto.offset.reset": "use start= of the input",
    "enable.auto.commit": "positions are in the task log",
    "group.id": "headgate uses no consumer group",
    "linger.ms": "use the setting commit.interval",
    "batch.size": "use the setting outbox.batch-bytes",
    "compression.type": "use the setting compression",
    "compression.codec": "use the setting compression",
    "key.serializer": "use key_serde=",
    "value.serializer": "use serde=",
}
_PKCS12 = (".p12", ".pfx", ".pkcs12")
_STORES = (".jks", *_PKCS12)
_MARKS = re.compile(r"(-----(?:BEGIN|END) [A-Z0-9 ]+-----)")
_MAGIC = (b"\xfe\xed\xfe\xed", b"0\x82")
"""What JKS and PKCS12 begin with."""
KNOWN = frozenset((*_PASSED, *_TLS, _JAAS))


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The brokers' addresses and how to talk to them. `given` contains the user's own settings, checked."""

    bootstrap: str
    given: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        if not self.bootstrap.strip():
            raise SettingError("no broker is given", remedy="-b HOST:PORT, or HEADGATE_BOOTSTRAP")
        for one in self.bootstrap.split(","):
            if one.strip():
                _address(one.strip())
        for name, value in self.given.items():
            if name in OURS:
                raise SettingError(f"client setting {name} cannot be set: {OURS[name]}")
            if name not in KNOWN:
                raise SettingError(
                    f"client setting {name} is unknown",
                    remedy=did_you_mean(name, KNOWN)
                    or "use a name of the Java client or of librdkafka, such as security.protocol",
                )
            if name in _PASSED:
                _PASSED[name][2](name, value)
        if self._protocol().startswith("SASL_"):
            self._sasl()
        if self._protocol().endswith("SSL"):
            _refuse_other_stores(self.given)

    @classmethod
    def parse(cls, bootstrap: str, pairs: Iterable[str] = ()) -> ClientSettings:
        """From `-b` and every `-X key=value`. If a name is given twice, the last one wins.

        >>> ClientSettings.parse("b:9092", ["client.id=x"]).given["client.id"]
        'x'
        """
        given: dict[str, str] = {}
        for pair in pairs:
            name, equals, value = pair.partition("=")
            if not equals or not name.strip():
                raise SettingError(f"-X takes KEY=VALUE, not {shown(pair, pair)!r}", remedy="like -X client.id=sales")
            given[name.strip()] = value.strip()
        return cls(bootstrap, MappingProxyType(given))

    def shown(self) -> dict[str, str]:
        """The settings for people and logs, without secrets."""
        return mask({"bootstrap.servers": self.bootstrap, **self.given})

    def plain(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """Addresses and settings as plain data, with secrets: for executors, and never for a log."""
        return self.bootstrap, tuple(sorted(self.given.items()))

    def __repr__(self) -> str:
        return f"ClientSettings({', '.join(f'{k}={v}' for k, v in self.shown().items())})"

    @property
    def guarded(self) -> bool:
        """Whether the brokers need more than an address: TLS or a user."""
        return any(name.startswith(("security.", "sasl.", "ssl.")) for name in self.given)

    @property
    def user(self) -> str | None:
        """The user who logs in with a password; None if no one does."""
        return self._sasl().get("sasl_plain_username") if self._protocol().startswith("SASL_") else None

    def consumer(self, **ours: Any) -> dict[str, Any]:
        """Arguments for an `AIOKafkaConsumer`; `ours` override the user's."""
        return {**self._arguments(_READ), **ours}

    def producer(self, **ours: Any) -> dict[str, Any]:
        """Arguments for an `AIOKafkaProducer`; `ours` override the user's."""
        return {**self._arguments(_WRITE), **ours}

    def admin(self, **ours: Any) -> dict[str, Any]:
        """Arguments for an `AIOKafkaAdminClient`; `ours` override the user's."""
        return {**self._arguments(_ALL), **ours}

    def _protocol(self) -> str:
        return self.given.get("security.protocol", "PLAINTEXT").upper()

    def _arguments(self, who: str) -> dict[str, Any]:
        out: dict[str, Any] = {"bootstrap_servers": [s.strip() for s in self.bootstrap.split(",") if s.strip()]}
        for name, value in self.given.items():
            if name in _PASSED and _PASSED[name][0] in (_ALL, who):
                _, theirs, read = _PASSED[name]
                out[theirs] = read(name, value)
        protocol = self._protocol()
        if protocol.startswith("SASL_"):
            out.update(self._sasl())
        if protocol.endswith("SSL"):
            out["ssl_context"] = _tls(self.given)
        return out

    def _sasl(self) -> dict[str, str]:
        mechanism = _mechanism(
            "sasl.mechanism", self.given.get("sasl.mechanism", self.given.get("sasl.mechanisms", "PLAIN"))
        )
        out = {"sasl_mechanism": mechanism}
        user, password = self.given.get("sasl.username"), self.given.get("sasl.password")
        if _JAAS in self.given:
            user, password = _jaas(self.given[_JAAS])
        if mechanism != "GSSAPI":
            if user is None or password is None:
                raise SettingError(
                    f"SASL {mechanism} needs a user and a password",
                    remedy="-X sasl.username=… -X sasl.password=…, or sasl.jaas.config",
                )
            out["sasl_plain_username"], out["sasl_plain_password"] = user, password
        return out


def _address(text: str) -> None:
    """Accept `host`, `host:port` and `[address]:port`, as aiokafka does; raise for anything else."""
    host, port = text, "9092"
    if text.startswith("["):
        host, closed, behind = text[1:].partition("]")
        wrong = not closed or (behind and not behind.startswith(":"))
        port = behind[1:] if behind else port
    else:
        wrong = "/" in text
        if text.count(":") == 1:
            host, _, port = text.partition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
    if wrong or not host.strip() or any(c.isspace() for c in host) or not 0 < number < 65536:
        raise SettingError(
            f"{shown('bootstrap', text)!r} is not a broker address",
            remedy="use HOST:PORT, such as localhost:9092; separate several with commas",
        )


def _jaas(text: str) -> tuple[str | None, str | None]:
    """User and password from a JAAS login line: `org…PlainLoginModule required username="ann" password="…";`."""
    try:
        words = shlex.split(text.rstrip().rstrip(";"))
    except ValueError:
        raise SettingError(
            "sasl.jaas.config cannot be read", remedy='… required username="USER" password="PASSWORD";'
        ) from None
    pairs = (word.split("=", 1) for word in words if "=" in word)
    fields = {name: value for name, value in pairs}  # noqa: C416 - dict() of lists is refused by the type checker
    return fields.get("username"), fields.get("password")


def _refuse_other_stores(given: Mapping[str, str], *, look: bool = False) -> None:
    """Refuse stores that are not in PEM, judging by their type and name, or by what they begin with."""
    for store in ("ssl.truststore", "ssl.keystore"):
        where, kind = given.get(f"{store}.location", ""), given.get(f"{store}.type", "PEM").upper()
        ends = where.lower().endswith
        if not where or (kind == "PEM" and not ends(_STORES) and not (look and _begins_as_store(where))):
            continue
        old, name, trusts = shlex.quote(where), shlex.quote(str(Path(where).with_suffix(""))), store == "ssl.truststore"
        steps = ["convert it, and name the result:"]
        if kind != "PKCS12" and not ends(_PKCS12):
            steps.append(f"keytool -importkeystore -srckeystore {old} -destkeystore {name}.p12 -deststoretype PKCS12")
            old = f"{name}.p12"
        steps.append(f"openssl pkcs12 -in {old}{' -nokeys' if trusts else ''} -out {name}.pem")
        steps.append(f"{store}.location={name}.pem and {store}.type=PEM")
        if not trusts:
            steps.append("ssl.key.password=the password that openssl has asked for")
        raise SettingError(f"{store}.location is {where!r}, a store that is not in PEM", remedy="\n  ".join(steps))


def _begins_as_store(where: str) -> bool:
    try:
        with open(where, "rb") as file:
            return file.read(4).startswith(_MAGIC)
    except OSError:
        return False


def _tls(given: Mapping[str, str]) -> ssl.SSLContext:
    first = partial(_first, given)
    try:
        context = ssl.create_default_context(
            cafile=first("ssl.ca.location", "ssl.truststore.location"),
            cadata=_pem(first("ssl.ca.pem", "ssl.truststore.certificates")),
        )
        _identity(context, given)
    except (OSError, ssl.SSLError) as error:
        _refuse_other_stores(given, look=True)
        raise EnvironmentFault(
            f"TLS files cannot be read: {error}",
            remedy="check the files that the ssl.* settings name; a key that is encrypted needs ssl.key.password",
        ) from error
    if not given.get("ssl.endpoint.identification.algorithm", "https").strip().lower().replace("none", ""):
        context.check_hostname = False
    if "enable.ssl.certificate.verification" in given and not _boolean(
        "enable.ssl.certificate.verification", given["enable.ssl.certificate.verification"]
    ):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "ssl.cipher.suites" in given:
        context.set_ciphers(given["ssl.cipher.suites"])
    return context


def _first(given: Mapping[str, str], *names: str) -> str | None:
    return next((given[name] for name in names if name in given), None)


def _pem(text: str | None) -> str | None:
    """PEM with its lines, which may be written as `\\n` or as spaces."""
    if not text:
        return None
    text = text.replace("\\n", "\n").strip()
    if "\n" in text:
        return text
    return "\n".join(
        part.strip() if part.startswith("-") else part.strip().replace(" ", "\n") for part in _MARKS.split(text) if part
    )


def _identity(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    def password() -> str:
        return given.get("ssl.key.password", "")  # without one, OpenSSL would ask at the terminal

    chain = _first(given, "ssl.certificate.location", "ssl.keystore.location")
    if chain:
        context.load_cert_chain(chain, given.get("ssl.key.location"), password)
        return
    certificate = _pem(_first(given, "ssl.certificate.pem", "ssl.keystore.certificate.chain"))
    key = _pem(_first(given, "ssl.key.pem", "ssl.keystore.key"))
    if not certificate or not key:
        return
    # Python's ssl reads keys from files only. This file is readable for us alone and is removed before this function returns.
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        Path(file.name).chmod(0o600)
        file.write(key + "\n" + certificate)
        file.flush()
        context.load_cert_chain(file.name, None, password)

"""The configuration of a broker: the text of `server.properties` and of its log4j2 configuration.

Decides every setting of the embedded Kafka. Promises: it listens on loopback only. Topics are never created by accident. Transactions and
groups work on a single node. With three nodes, everything has three replicas, of which at least two are in sync.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one node, all on loopback."""

    client: int
    controller: int
    admin: int = 0
    """Only for a secure broker: TLS with a client certificate, for the brokers among themselves and for the owner."""


def server_properties(node: int, ports: list[Ports], directory: Path, secrets: Path | None) -> str:
    """The settings of node `node` (from 1) of `len(ports)`. With `secrets`, the node is secure and uses the certificates there."""
    own = ports[node - 1]
    copies = 3 if len(ports) >= 3 else 1
    in_step = 2 if copies == 3 else 1
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{number}@{HOST}:{p.controller}" for number, p in enumerate(ports, 1)),
        "controller.listener.names": "CONTROLLER",
        "log.dirs": directory / "data",
        # A mistyped topic name must not create a topic.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_step,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_step,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_step,
        # Few partitions of the internal topics: each costs files and start-up time, and there are few groups and writers.
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.num.partitions": 1,
        "offsets.topic.segment.bytes": 4 * 1024 * 1024,
        "transaction.state.log.segment.bytes": 4 * 1024 * 1024,
        # There are many small compacted topics: compact them soon, with little memory.
        "log.segment.bytes": 128 * 1024 * 1024,
        "log.index.size.max.bytes": 1024 * 1024,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
        "log.cleaner.backoff.ms": 2000,
        "log.cleaner.min.cleanable.ratio": 0.2,
        "log.retention.check.interval.ms": 10_000,
        # Event times may be old, and Kafka's default of seven days counts from a record's timestamp: keep everything.
        "log.retention.ms": -1,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
        "group.initial.rebalance.delay.ms": 0,
        # Groups of the newer protocols may ask for sessions as short as those of classic groups (by default not below 45 s).
        "group.consumer.min.session.timeout.ms": 6000,
        "group.consumer.min.heartbeat.interval.ms": 1000,
        "group.streams.min.session.timeout.ms": 6000,
        "group.streams.min.heartbeat.interval.ms": 1000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # After kill -9 a broker waits until its old registration has expired: nine seconds by default. A single node that is held up for
        # longer is fenced, and Kafka then leaves out the commit markers of all partitions, so that this is no matter of seconds.
        "broker.session.timeout.ms": 6000 if copies == 1 else 3000,
        "broker.heartbeat.interval.ms": 300,
        "num.network.threads": 2,
        "num.io.threads": 4,
        "background.threads": 4,
        "num.recovery.threads.per.data.dir": 2,
    }
    settings |= _secure(own, secrets) if secrets else _plain(own)
    return "# Written by `headgate kafka`; changes are lost at the next start.\n" + "".join(
        f"{k}={v}\n" for k, v in settings.items()
    )


def _plain(own: Ports) -> dict[str, object]:
    listeners = f"PLAINTEXT://{HOST}:{own.client},CONTROLLER://{HOST}:{own.controller}"
    return {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }


def _secure(own: Ports, secrets: Path) -> dict[str, object]:
    return {
        "listeners": f"CLIENT://{HOST}:{own.client},ADMIN://{HOST}:{own.admin},CONTROLLER://{HOST}:{own.controller}",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,ADMIN:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "ADMIN",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        "listener.name.client.scram-sha-512.sasl.jaas.config": _SCRAM,
        "listener.name.client.scram-sha-256.sasl.jaas.config": _SCRAM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": secrets / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": secrets / "ca.pem",
        "listener.name.admin.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
        # The certificate names are ours: CN=headgate-broker, CN=headgate-admin.
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:headgate-broker;User:headgate-admin;User:admin",
        "allow.everyone.if.no.acl.found": "false",
    }


def log4j2_properties(log: Path) -> str:
    """Configure one log file, rolled at 20 MB with one predecessor, and nothing on standard output."""
    return f"""# Written by `headgate kafka`.
status=error
appender.file.type=RollingFile
appender.file.name=FILE
appender.file.fileName={log}
appender.file.filePattern={log}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{yyyy-MM-dd HH:mm:ss.SSS}} %-5p %c{{1}}: %m%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=20MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=1
rootLogger.level=info
rootLogger.appenderRef.file.ref=FILE
# Twenty pages of settings at each start help no one to find what went wrong.
logger.config.name=org.apache.kafka.common.config
logger.config.level=warn
logger.server_config.name=kafka.server.KafkaConfig
logger.server_config.level=warn
"""

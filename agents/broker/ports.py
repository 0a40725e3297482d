"""Chooses the ports of a broker, all on loopback.

Decides: the given port; otherwise those of the last start, so that clients find the broker again; otherwise free ones. Promise: if a given
port is taken, an error is raised before anything starts.
"""

from __future__ import annotations

import socket

from ...core.errors import EnvironmentFault
from .settings import HOST, Ports
from .storage import BrokerIdentity


def choose_ports(identity: BrokerIdentity, port: int | None) -> list[Ports]:
    """The ports of every node. `port` is for the client listener of the first node."""
    if port is not None and not is_free(port):
        raise EnvironmentFault(
            f"port {port} on {HOST} is taken", remedy="choose another with --port, or omit it for a free one"
        )
    before = identity.ports
    if before and port in (None, before[0].client) and all(is_free(p) for ports in before for p in _all(ports)):
        return list(before)
    free = free_ports(identity.nodes * 3)
    chosen: list[Ports] = []
    for node in range(identity.nodes):
        client, controller, admin = free[3 * node : 3 * node + 3]
        if port is not None and node == 0:
            client = port
        chosen.append(Ports(client, controller, admin if identity.secure else 0))
    return chosen


def _all(ports: Ports) -> list[int]:
    return [port for port in (ports.client, ports.controller, ports.admin) if port]


def is_free(port: int) -> bool:
    """Whether a broker could listen on this port. Connections of a broker that has just ended do not matter, as in Java."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Free ports of loopback."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()

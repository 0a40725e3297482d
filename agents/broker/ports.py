"""Chooses the ports of a broker, all on loopback.

Decides: the given port; otherwise those of the last start, so that clients find the broker again; otherwise free ones. Promise: if a given
port is taken, an error is raised before anything starts.
"""

from __future__ import annotations

import itertools
import random
import socket
from pathlib import Path

from ...core.errors import EnvironmentFault
from .settings import HOST, Ports
from .storage import BrokerIdentity

FIRST = 20_000
"""Below it are ports that people choose for servers."""
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


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
    """Free ports of loopback, below those that the kernel hands out: one of these may be someone else's before its broker runs again."""
    below = random.SystemRandom().sample(range(FIRST, handed_out()), max(0, handed_out() - FIRST))
    found = list(itertools.islice(filter(is_free, below), count))
    return found if len(found) == count else _any_free(count)


def handed_out() -> int:
    """The first port that the kernel hands out to whoever asks for any; `FIRST` if it does not say."""
    try:
        first = int(RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = FIRST
    return max(FIRST, first)


def _any_free(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()

"""Which ports a broker gets: such that are still free when it comes back."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headgate.agents.broker import ports


def handing_out(monkeypatch: pytest.MonkeyPatch, file: Path, text: str) -> None:
    file.write_text(text)
    monkeypatch.setattr(ports, "RANGE", file)


def test_a_port_is_none_that_someone_else_gets_by_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who asked for any port while the broker was down got its port, and its clients did not find it again."""
    handing_out(monkeypatch, tmp_path / "range", "32768\t60999\n")
    found = ports.free_ports(30)
    assert len(set(found)) == 30
    assert [port for port in found if not ports.FIRST <= port < 32_768] == []


def test_a_port_that_is_taken_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ports.free_ports(1)[0]))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "FIRST", port)
        handing_out(monkeypatch, tmp_path / "range", f"{port + 40}\t60999\n")
        assert port not in ports.free_ports(10)


@pytest.mark.parametrize("text", ["1024\t65535\n", "20001\t60999\n", "", "none"])
def test_where_the_kernel_hands_out_all_of_them_any_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A machine may be set so; others do not say what they hand out."""
    handing_out(monkeypatch, tmp_path / "range", text)
    found = ports.free_ports(9)
    assert len(set(found)) == 9
    assert all(map(ports.is_free, found))

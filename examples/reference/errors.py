"""Examples of the page about errors: each function is one, and its first line says of what."""

from __future__ import annotations

import headgate as hg


def headgate_error() -> None:
    """HeadgateError"""
    try:
        hg.App("sales", settings={"commit.intervall": "1s"})
    except hg.HeadgateError as error:  # every error that headgate raises on purpose
        assert error.remedy == "did you mean 'commit.interval'?"


def declaration_error() -> None:
    """DeclarationError"""
    try:
        hg.App("sales").input("orders").map("no function")  # type: ignore
    except hg.DeclarationError as error:
        assert "map" in str(error)


def setting_error() -> None:
    """SettingError"""
    try:
        hg.App("sales", settings={"session.timeout": "0s"})
    except hg.SettingError as error:
        assert "at least 500ms" in str(error)


def data_error() -> None:
    """DataError"""
    try:
        hg.json().loads(b"{")
    except hg.DataError as error:
        assert "not json" in str(error)


def user_code_error() -> None:
    """UserCodeError"""
    app = hg.App("sales")
    app.input("orders").map(lambda order: order["amount"] / order["items"]).to("prices")

    with hg.testing.Driver(app) as driver:
        try:
            driver.send("orders", {"amount": 3, "items": 0})
        except hg.UserCodeError as error:
            assert isinstance(error.__cause__, ZeroDivisionError)


def environment_fault() -> None:
    """EnvironmentFault"""
    try:
        hg.drains("sales", bootstrap="127.0.0.1:1")
    except hg.EnvironmentFault as error:  # a broker, a disk, a port, a permission
        assert "127.0.0.1:1" in str(error)

"""`hg.query` and the test driver, called wrongly: what is said names the right form. What they do is tested on Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import headgate as hg


def test_a_block_that_is_not_async_says_so() -> None:
    """`with` instead of `async with`, also in a program that has no loop."""
    with (
        pytest.raises(
            hg.DeclarationError, match=r"async with hg\.query\(job, table\) as table.* asyncio\.run\(main\(\)\)"
        ),
        hg.query("sales", "spent"),  # type: ignore[attr-defined]
    ):
        pass


def test_a_block_that_is_awaited_says_so() -> None:
    """`await hg.query(…)`."""

    async def awaited() -> Any:
        return await hg.query("sales", "spent")

    with pytest.raises(hg.DeclarationError, match=r"is a block.*async with hg\.query"):
        asyncio.run(awaited())


def test_a_table_that_is_asked_without_its_block_names_the_block() -> None:
    """As a single line in a program without a loop is often tried."""
    with pytest.raises(hg.HeadgateError, match=r"'spent' of sales is not open.*async with .*asyncio\.run\(main\(\)\)"):
        asyncio.run(hg.query("sales", "spent").get("ann"))


@pytest.mark.parametrize("url", ["localhost:80", "127.0.0.1", "ftp://there", "http://", ["http://a:1", "b:2"], [7]])
def test_what_is_no_address_is_refused_at_once(url: Any) -> None:
    """Before anything is asked; an address without http:// is the usual one."""
    with pytest.raises(hg.DeclarationError, match=r"begins with http://") as refused:
        hg.query("sales", "spent", url=url)
    assert "no address" in refused.value.what


@pytest.mark.parametrize("key", ["\ud800", 1 << 70, object(), ("DE", {1})], ids=["surrogate", "large", "object", "set"])
def test_what_cannot_be_sent_as_a_key_says_what_keys_are(key: Any) -> None:
    """Before a worker is asked, as JSON has no such value."""
    with pytest.raises(hg.DataError, match=r"table spent: what is asked for .* keys are text"):
        asyncio.run(hg.query("sales", "spent").get(key))


def test_a_token_with_the_end_of_its_line_is_refused() -> None:
    """As it is read from a file; no header of HTTP has such a character."""

    async def main() -> None:
        async with hg.query("sales", "spent", url="http://127.0.0.1:1", token="secret\n"):
            pass

    with pytest.raises(hg.DeclarationError, match=r"control character.*strip") as refused:
        asyncio.run(main())
    assert "secret" not in str(refused.value)


def test_the_address_in_an_error_has_no_password() -> None:
    """It may stand in it all the same."""
    with pytest.raises(hg.DeclarationError) as refused:
        hg.query("sales", "spent", url="ftp://ann:hunter22@there")
    assert "hunter22" not in str(refused.value)


def test_an_async_block_of_a_driver_says_so() -> None:
    """It runs in a coroutine as it is."""
    app = hg.App("sales")
    app.input("orders").to("out")

    async def main() -> list[Any]:
        with hg.testing.Driver(app) as driver:
            driver.send("orders", 1)
            found = [one.value for one in driver.read("out")]
        async with hg.testing.Driver(app):
            pass
        return found

    with pytest.raises(hg.HeadgateError, match=r"with hg\.testing\.Driver\(app\) as driver"):
        asyncio.run(main())

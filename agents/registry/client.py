"""Asks a schema registry over HTTP: Confluent's REST API, which Apicurio, Karapace, Redpanda and AWS's and Azure's gateways speak, too.

What it decides: which address is asked, and what an answer means. Of several addresses the first that answers is taken, and asked first
from then on. Promises: the main loop is never blocked; what has been answered is asked once in a process; a registry that does not answer
is not asked by all tasks at once; no message holds a secret. A connection lives for one question: there is one for each schema, not for
each record.

Some registries know no GUIDs, and answer a question by GUID as they answer any path that they do not have: 404, without a code of theirs.
So does a server that is no registry. They are told apart by one more question, about an id, which each registry answers. What a registry
does not have is an answer: the record that names it is bad data, and its partition goes on.

The client is aiohttp, which is there for Faust's web server: asyncio, TLS and connection limits are its own, and nothing is added.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit
from uuid import UUID

from ...core.errors import SettingError
from ...core.secrets import masked
from ..cancellation import said
from ..learning import NotYet
from ..live_settings import Settings
from .asked import AVRO, NoGuids, NoSchema, Reference, SchemaText, Standing

T = TypeVar("T")
TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_S = 10.0
"""How long one question may take."""
QUIET_S = 0.5
"""So long after a failure no other task asks again."""
NO_SUBJECT, NO_VERSION, NO_SCHEMA = 40401, 40402, 40403
ANY_ID = "schemas/ids/1"
"""A question that each registry answers, with a schema or with its own code that there is none."""
ANY_GUID = UUID(int=0)
"""A GUID that no schema has."""
NO_PATH = (400, 404, 405)
"""How servers answer a path that they do not have, or an id that they cannot read."""
URL = "registry.url"
NORMAL = "?normalize=true"
"""Schemas that differ in spaces, or in the order of what has none, are one."""


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """Where a registry is, and who asks."""

    urls: tuple[str, ...]
    user: str = ""
    password: str = ""
    token: str = ""
    authorities: str = ""
    certificate: str = ""
    key: str = ""

    @classmethod
    def of(cls, settings: Settings, otherwise: str = "") -> RegistryAccess:
        """The registry that the settings name, or else `otherwise`; raises `SettingError`."""
        named = settings.text(URL) or otherwise
        urls = tuple(one.strip().rstrip("/") for one in named.split(",") if one.strip())
        if not urls:
            raise SettingError(
                f"the job has serdes that ask a schema registry, and '{URL}' says of none",
                remedy=f"{URL} = \"http://…:8081\" in headgate.toml, HEADGATE_REGISTRY_URL, or App(settings={{'{URL}': …}})",
            )
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise SettingError(f"'{URL}' is not an address: {masked(url)!r}", remedy="http://… or https://…")
        names = ("user", "password", "token", "ca", "certificate", "key")
        found = cls(urls, *(settings.text(f"registry.{name}") for name in names))
        if found.token and found.user:
            raise SettingError(
                "'registry.user' and 'registry.token' say two ways to log in", remedy="set one of the two"
            )
        if found.key and not found.certificate:
            raise SettingError("'registry.key' needs 'registry.certificate'", remedy="set both, or none")
        found.tls()
        return found

    def tls(self) -> ssl.SSLContext | None:
        """How servers are known, and the client's own certificate; None over plain HTTP."""
        if not any(url.startswith("https:") for url in self.urls):
            return None
        at = self.authorities
        try:
            context = ssl.create_default_context(cafile=str(Path(at).expanduser()) if at else None)
            if at := self.certificate:
                key = str(Path(self.key).expanduser()) if self.key else None
                context.load_cert_chain(str(Path(at).expanduser()), key)
        except (OSError, ssl.SSLError) as error:
            name = "registry.certificate" if at == self.certificate else "registry.ca"
            raise SettingError(f"'{name}': {at} cannot be read: {error}", remedy="a file in PEM") from error
        return context

    def headers(self) -> dict[str, str]:
        """What each question says of who asks."""
        found = {"Accept": f"{TYPE}, application/json"}
        if self.user:
            found["Authorization"] = f"Basic {base64.b64encode(f'{self.user}:{self.password}'.encode()).decode()}"
        elif self.token:
            found["Authorization"] = f"Bearer {self.token}"
        return found


class HttpRegistry:
    """The registry of a process."""

    def __init__(self, access: RegistryAccess, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._tls = access.tls()
        self._clock = clock
        self._urls = list(access.urls)
        self._known: dict[Hashable, Any] = {}
        self._lock = asyncio.Lock()
        self._away = ""
        """Why no address answered last; empty if one did."""
        self._away_s = 0.0
        self.questions = 0
        """How often it has asked."""

    @property
    def said(self) -> str:
        return f"the schema registry at {', '.join(map(masked, self._access.urls))}"

    async def by_id(self, schema: int | UUID) -> SchemaText:
        return await self._once(schema, lambda: self._by_id(schema))

    async def _by_id(self, schema: int | UUID) -> SchemaText:
        where = f"schemas/ids/{schema}"
        lacks = NoSchema(f"{self.said}: it cannot have a schema with the id {schema}")
        if isinstance(schema, UUID):
            where = f"schemas/guids/{schema}"
            why = f"the record names its schema by a GUID, {schema}, and this registry knows no GUIDs"
            lacks = NoGuids(f"{self.said}: {why}")
        # Protobuf as a descriptor: a registry may keep it as text otherwise
        missing = f"no schema has the id {schema}"
        return _schema(
            await self._ask("GET", f"{where}?format=serialized", missing, lacks=None if where == ANY_ID else lacks)
        )

    async def has_guids(self) -> bool:
        try:
            await self._by_id(ANY_GUID)
        except NoGuids:
            return False
        except NoSchema:
            pass  # it looked for one
        return True

    async def version(self, subject: str, version: int | None) -> Standing:
        if version is None:  # it may be another one later
            return await self._version(subject, "latest")
        return await self._once((subject, version), lambda: self._version(subject, str(version)))

    async def _version(self, subject: str, version: str) -> Standing:
        missing = (
            f"the subject '{subject}' has no version {version}" if version != "latest" else f"no subject '{subject}'"
        )
        return _standing(
            await self._ask("GET", f"subjects/{quote(subject, safe='')}/versions/{version}?format=serialized", missing)
        )

    async def find(self, subject: str, schema: SchemaText) -> Standing:
        missing = f"the schema does not stand under the subject '{subject}'"
        found = await self._ask("POST", f"subjects/{quote(subject, safe='')}{NORMAL}", missing, _document(schema))
        return Standing(int(found["id"]), int(found["version"]), schema, _guid(found))

    async def register(self, subject: str, schema: SchemaText) -> Standing:
        found = await self._ask("POST", f"subjects/{quote(subject, safe='')}/versions{NORMAL}", "", _document(schema))
        return Standing(int(found["id"]), int(found.get("version") or 0), schema, _guid(found))

    # ----------------------------------------------------------------------------------------------------------- asking

    async def _once(self, question: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question that has one answer for good."""
        async with self._lock:
            if question not in self._known:
                self._known[question] = await ask()
            return self._known[question]

    async def _ask(
        self, method: str, path: str, missing: str, body: bytes | None = None, *, lacks: NoSchema | None = None
    ) -> Any:
        """The answer of the first address that gives one. `missing`: what it means that there is none; `lacks`: what it means that a
        registry does not have this path; without it, none stands there."""
        if self._away and self._clock() < self._away_s + QUIET_S:
            raise self._unanswered(self._away)
        why = ""
        for url in list(self._urls):
            try:
                status, text = await self._sent(method, f"{url}/{path}", body)
                why = _refused(status, text)
                has_no_path = why != "" and lacks is not None and status in NO_PATH and await self._is_registry(url)
            except Exception as error:  # noqa: BLE001 - whatever the client raises, it is no answer
                why = said(error)
                continue
            if has_no_path or not why:
                self._urls.remove(url)
                self._urls.insert(0, url)
                self._away = ""
                if has_no_path and lacks is not None:
                    raise lacks
                return _answer(status, text, missing, self.said)
        self._away, self._away_s = why, self._clock()
        raise self._unanswered(why)

    async def _is_registry(self, url: str) -> bool:
        """Whether a registry stands there, whatever it does not have."""
        status, text = await self._sent("GET", f"{url}/{ANY_ID}", None)
        return not _refused(status, text) and _is_json(text)

    def _unanswered(self, why: str) -> NotYet:
        return NotYet(
            f"{self.said} does not answer: {masked(why)}",
            remedy="start it, or correct registry.url and what it needs to log in; it is asked again until it answers",
        )

    async def _sent(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        import aiohttp

        self.questions += 1
        headers = {**self._access.headers(), **({"Content-Type": TYPE} if body is not None else {})}
        limit = aiohttp.ClientTimeout(total=ANSWER_S)
        connector = aiohttp.TCPConnector(ssl=self._tls if self._tls is not None else True)
        async with aiohttp.ClientSession(connector=connector, timeout=limit, headers=headers) as session:
            async with session.request(method, url, data=body) as answer:
                return answer.status, await answer.read()


def _refused(status: int, text: bytes) -> str:
    """Why this is no answer of a registry; empty if it is one."""
    if status < 300 or _code(text) in (NO_SUBJECT, NO_VERSION, NO_SCHEMA) or status in (409, 422):
        return ""
    hint = {401: " (it wants a login)", 403: " (the login may not)", 404: " (no registry stands there)"}.get(status, "")
    return f"HTTP {status}{hint}: {text[:200].decode(errors='replace')}"


def _answer(status: int, text: bytes, missing: str, who: str) -> Any:
    if status < 300:
        try:
            return json.loads(text)
        except ValueError:
            raise NotYet(f"{who} does not answer in JSON: {text[:80]!r}", remedy="correct registry.url") from None
    if _code(text) in (NO_SUBJECT, NO_VERSION, NO_SCHEMA) and missing:
        raise NoSchema(f"{who}: {missing}")
    raise NoSchema(f"{who} refuses the schema: {_message(text)}")


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _code(text: bytes) -> int:
    try:
        return int(json.loads(text)["error_code"])
    except (ValueError, KeyError, TypeError):
        return 0


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200].decode(errors="replace")


def _document(schema: SchemaText) -> bytes:
    found: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        found["schemaType"] = schema.kind
    if schema.references:
        found["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
        ]
    return json.dumps(found).encode()


def _schema(found: Any) -> SchemaText:
    references = tuple(
        Reference(one["name"], one["subject"], int(one["version"])) for one in found.get("references") or ()
    )
    return SchemaText(found.get("schemaType") or AVRO, found["schema"], references)


def _standing(found: Any) -> Standing:
    return Standing(int(found["id"]), int(found["version"]), _schema(found), _guid(found))


def _guid(found: Any) -> UUID | None:
    return UUID(found["guid"]) if found.get("guid") else None

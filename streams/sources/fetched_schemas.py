"""Schemas that a definition's file asks for by where they are served: fetched once, and put into the definition.

A file may say `schema: {reflection: {target: scorer, services: [loan.v1.Scorer]}}`, which becomes
`descriptorSetBase64`, or `schema: {registrySubject: {subject: orders-value, version: 3}}`, which becomes `sources`.
What is stored is what was there when the file was put or submitted; nothing is asked again later.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import ContractError, InputInvalid, NotFound, StepFailed
from streams.calls.targets import Targets
from streams.calls.targets_file import Target, is_address
from streams.kafka.registry import SchemaRegistry
from streams.sources.reflection import reflected
from streams.sources.subjects import subject_sources
from streams.workflow.json_values import shown

REFLECTION: Final = "reflection"
SUBJECT: Final = "registrySubject"


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches schemas for whoever runs this process, who may ask any address.

    `read_targets` reads the targets of the settings, and `open_registry` opens their registry, each where a definition
    needs it.
    """

    read_targets: Callable[[], Targets]
    open_registry: Callable[[], SchemaRegistry]

    def target(self, name: str) -> Target:
        """The target of that name or address.

        Raises:
            InputInvalid: it is neither.
            SettingsInvalid: the file of targets cannot be used.
        """
        found = self.read_targets().find(name)
        if found is None and is_address(name):
            found = Target(name, name, tls=False, permits=1)
        if found is None:
            raise InputInvalid(f"{shown(name)} is neither a target of TARGETS_FILE nor host:port")
        return found

    async def fetched(self, document: object) -> object:
        """The definition with what its schema asks for in place of the question; others as they are.

        Raises:
            InputInvalid: the question is not one, or has no answer; with its pointer.
            RegistryUnavailable, CallFailed: no answer; call again.
        """
        if not isinstance(document, Mapping) or not isinstance(schema := document.get("schema"), Mapping):
            return document
        for key, ask in ((REFLECTION, self._reflected), (SUBJECT, self._registered)):
            if key in schema:
                others = {name: value for name, value in schema.items() if name != key}
                return {**document, "schema": {**others, **await _asked(key, schema[key], ask)}}
        return document

    async def _reflected(self, question: "_Question") -> dict[str, object]:
        target, services = question.text("target"), question.texts("services")
        data = await reflected(self.target(target), tls=question.flag("tls"), services=services)
        return {"descriptorSetBase64": base64.b64encode(data).decode()}

    async def _registered(self, question: "_Question") -> dict[str, object]:
        subject, version = question.text("subject"), question.number("version")
        registry = self.open_registry()
        try:
            found = await subject_sources(registry, subject, version)
        finally:
            await registry.close()
        return {"sources": dict(found.sources), "root": found.root}


_KEYS: Final = {REFLECTION: ("target", "tls", "services"), SUBJECT: ("subject", "version")}


async def _asked(
    key: str, given: object, ask: Callable[["_Question"], Awaitable[dict[str, object]]]
) -> dict[str, object]:
    try:
        return await ask(_Question(key, given))
    except (NotFound, ContractError, StepFailed) as error:
        if error.retryable:
            raise
        raise InputInvalid(str(error), pointer=f"/schema/{key}") from None
    except InputInvalid as error:
        raise InputInvalid(str(error), pointer=error.pointer or f"/schema/{key}", code=error.code) from None


class _Question:
    """The members of one question, read strictly. Every reader raises InputInvalid with the member's pointer."""

    def __init__(self, key: str, given: object) -> None:
        self._pointer = f"/schema/{key}"
        if not isinstance(given, Mapping):
            raise InputInvalid(f"{key} must be an object, not {shown(given)}", pointer=self._pointer)
        for name in given:
            if name not in _KEYS[key]:
                text = f"{shown(name)} is no key here (known: {', '.join(_KEYS[key])})"
                raise InputInvalid(text, pointer=f"{self._pointer}/{name}")
        self._given: Mapping[str, Any] = given

    def _wrong(self, name: str, wanted: str) -> InputInvalid:
        return InputInvalid(f"{name} must be {wanted}", pointer=f"{self._pointer}/{name}")

    def text(self, name: str) -> str:
        value = self._given.get(name)
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(name, "a text")
        return value

    def texts(self, name: str) -> list[str]:
        value = self._given.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self._wrong(name, "a list of texts")
        return value

    def flag(self, name: str) -> bool:
        value = self._given.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def number(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise self._wrong(name, "a number from 1 on")
        return value

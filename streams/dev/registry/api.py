"""The registry's HTTP interface."""

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from streams.dev.registry.faults import Faults, fault_routes
from streams.dev.registry.model import FAULTS_PATH, REQUESTS_PATH, Refused, SchemaType, StoredSchema, SubjectVersion
from streams.dev.registry.payloads import (
    CONTENT_TYPE,
    answer,
    content,
    described,
    error,
    flag,
    level_in,
    number_of,
    schema_in,
    subject_of,
)
from streams.dev.registry.store import SchemaStore


def create_app() -> web.Application:
    """Return a registry without schemas."""
    store, faults, requests = SchemaStore(), Faults(), list[str]()
    one_at_a_time = asyncio.Lock()  # reading a schema takes a thread, and the store is not made for several
    app = web.Application(middlewares=[_answers(faults, requests)])
    app.add_routes(_Subjects(store, one_at_a_time).routes())
    app.add_routes(_Schemas(store).routes())
    app.add_routes(_Levels(store, one_at_a_time).routes())
    app.add_routes(fault_routes(faults, requests))
    return app


class _Subjects:
    """Subjects and their versions."""

    def __init__(self, store: SchemaStore, lock: asyncio.Lock) -> None:
        self._store = store
        self._lock = lock

    def routes(self) -> list[web.RouteDef]:
        subject = "/subjects/{subject}"
        version = f"{subject}/versions/{{version}}"
        return [
            web.get("/subjects", self._list),
            web.post(subject, self._lookup),
            web.delete(subject, self._delete),
            web.get(f"{subject}/versions", self._versions),
            web.post(f"{subject}/versions", self._register),
            web.get(version, self._version),
            web.delete(version, self._delete_version),
            web.get(f"{version}/schema", self._text),
            web.get(f"{version}/referencedby", self._referenced_by),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        prefix = request.query.get("subjectPrefix", "")
        return answer(self._store.subjects(prefix=prefix, deleted=flag(request, "deleted")))

    async def _register(self, request: web.Request) -> web.Response:
        schema = await schema_in(request)
        async with self._lock:
            version = await asyncio.to_thread(self._store.register, subject_of(request), schema)
        return answer(described(version, request))

    async def _lookup(self, request: web.Request) -> web.Response:
        schema, deleted = await schema_in(request), flag(request, "deleted")
        async with self._lock:
            version = await asyncio.to_thread(self._store.lookup, subject_of(request), schema, deleted=deleted)
        return answer(described(version, request))

    async def _versions(self, request: web.Request) -> web.Response:
        versions = self._store.versions(subject_of(request), deleted=flag(request, "deleted"))
        return answer([version.number for version in versions])

    async def _version(self, request: web.Request) -> web.Response:
        return answer(described(self._requested(request), request))

    async def _text(self, request: web.Request) -> web.Response:
        return web.Response(text=self._requested(request).stored.schema.text, content_type=CONTENT_TYPE)

    async def _referenced_by(self, request: web.Request) -> web.Response:
        return answer(self._store.referenced_by(subject_of(request), number_of(request)))

    async def _delete(self, request: web.Request) -> web.Response:
        return answer(self._store.delete_subject(subject_of(request), permanent=flag(request, "permanent")))

    async def _delete_version(self, request: web.Request) -> web.Response:
        permanent = flag(request, "permanent")
        return answer(self._store.delete_version(subject_of(request), number_of(request), permanent=permanent))

    def _requested(self, request: web.Request) -> SubjectVersion:
        return self._store.version(subject_of(request), number_of(request), deleted=flag(request, "deleted"))


class _Schemas:
    """Schemas by id."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store

    def routes(self) -> list[web.RouteDef]:
        by_id = r"/schemas/ids/{id:\d+}"
        return [
            web.get("/", self._root),
            web.get("/mode", self._mode),
            web.get("/schemas/types", self._types),
            web.get(by_id, self._by_id),
            web.get(f"{by_id}/schema", self._text),
            web.get(f"{by_id}/subjects", self._subjects),
            web.get(f"{by_id}/versions", self._versions),
            web.get("/schemas/guids/{guid}", self._by_guid),
        ]

    async def _root(self, request: web.Request) -> web.Response:
        return answer({})

    async def _mode(self, request: web.Request) -> web.Response:
        return answer({"mode": "READWRITE"})

    async def _types(self, request: web.Request) -> web.Response:
        return answer([str(one) for one in SchemaType])

    async def _by_id(self, request: web.Request) -> web.Response:
        return answer(content(self._requested(request), request))

    async def _by_guid(self, request: web.Request) -> web.Response:
        stored = self._store.schema_by_guid(request.match_info["guid"])
        return answer({"id": stored.id, **content(stored, request)})

    async def _text(self, request: web.Request) -> web.Response:
        return web.Response(text=self._requested(request).schema.text, content_type=CONTENT_TYPE)

    async def _subjects(self, request: web.Request) -> web.Response:
        return answer(sorted({version.subject for version in self._uses(request)}))

    async def _versions(self, request: web.Request) -> web.Response:
        return answer([{"subject": one.subject, "version": one.number} for one in self._uses(request)])

    def _uses(self, request: web.Request) -> list[SubjectVersion]:
        return self._store.uses(int(request.match_info["id"]), deleted=flag(request, "deleted"))

    def _requested(self, request: web.Request) -> StoredSchema:
        return self._store.schema(int(request.match_info["id"]))


class _Levels:
    """Compatibility: its levels and its check."""

    def __init__(self, store: SchemaStore, lock: asyncio.Lock) -> None:
        self._store = store
        self._lock = lock

    def routes(self) -> list[web.RouteDef]:
        versions = "/compatibility/subjects/{subject}/versions"
        return [
            web.get("/config", self._global),
            web.put("/config", self._set_global),
            web.get("/config/{subject}", self._get),
            web.put("/config/{subject}", self._set),
            web.delete("/config/{subject}", self._clear),
            web.post(versions, self._check),
            web.post(f"{versions}/{{version}}", self._check),
        ]

    async def _global(self, request: web.Request) -> web.Response:
        return answer({"compatibilityLevel": self._store.level})

    async def _set_global(self, request: web.Request) -> web.Response:
        self._store.level = await level_in(request)
        return answer({"compatibility": self._store.level})

    async def _get(self, request: web.Request) -> web.Response:
        subject, inherited = subject_of(request), flag(request, "defaultToGlobal")
        level = self._store.level_of(subject) if inherited else self._store.own_level(subject)
        return answer({"compatibilityLevel": level})

    async def _set(self, request: web.Request) -> web.Response:
        level = await level_in(request)
        self._store.set_level(subject_of(request), level)
        return answer({"compatibility": level})

    async def _clear(self, request: web.Request) -> web.Response:
        return answer({"compatibilityLevel": self._store.clear_level(subject_of(request))})

    async def _check(self, request: web.Request) -> web.Response:
        schema = await schema_in(request)
        number = number_of(request) if "version" in request.match_info else None
        async with self._lock:
            faults = await asyncio.to_thread(self._store.check, subject_of(request), schema, number)
        messages = {"messages": faults} if flag(request, "verbose") else {}
        return answer({"is_compatible": not faults, **messages})


def _answers(faults: Faults, requests: list[str]) -> Middleware:
    @web.middleware
    async def serve(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in (FAULTS_PATH, REQUESTS_PATH):
            requests.append(f"{request.method} {request.path}")
            fault = faults.next()
            await asyncio.sleep(fault.delay_seconds)
            if fault.status:
                return error(fault.status, fault.status * 100 + 1, "this fault was asked for")
        try:
            return await handler(request)
        except Refused as refusal:
            return error(refusal.http_status, refusal.code, str(refusal))
        except web.HTTPException as other:
            return error(other.status, other.status, other.reason)

    return serve

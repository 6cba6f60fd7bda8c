"""`POST /verbs/{name}`: the verbs over HTTP, for callers on this machine."""

import json
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from schemas import strict_json
from schemas.errors import ContractError, InputInvalid
from streams.metrics import Metrics
from streams.settings import is_loopback
from streams.verbs.verbs import Verbs
from streams.web.problems import problem_of, problems

BODY_BYTES: Final = 10 << 20
"""A call with a definition and its schema fits; a larger body is refused before it is read."""


def verbs_app(verbs: Verbs, metrics: Metrics) -> web.Application:
    """Return the application of the verbs. Without tokens it trusts this machine alone: Host and Origin are checked."""

    async def call(request: web.Request) -> web.Response:
        answer = await verbs.call(request.match_info["name"], await _body(request))
        return web.json_response(text=json.dumps(answer, ensure_ascii=True))

    @web.middleware
    async def counted(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        if (name := request.match_info.get("name")) is not None:
            metrics.verbs.labels(name if response.status != 404 else "unknown", str(response.status)).inc()
        return response

    app = web.Application(middlewares=[counted, problems, local_only], client_max_size=BODY_BYTES)
    app.router.add_post("/verbs/{name}", call)
    return app


@web.middleware
async def local_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what a web page of another site, or a name that was rebound to this machine, makes a browser send."""
    if not _names_this_machine(f"http://{request.host}"):
        return problem_of("permission-denied", 403, f"Host {request.host!r} is not an address of this machine")
    origin = request.headers.get("Origin")
    if origin is not None and not _names_this_machine(origin):
        return problem_of("permission-denied", 403, f"Origin {origin!r} is not on this machine")
    return await handler(request)


def _names_this_machine(url: str) -> bool:
    try:
        host = URL(url).host
    except ValueError:
        return False
    return host is not None and is_loopback(host)


async def _body(request: web.Request) -> object:
    # A simple form post from another site cannot carry this type without asking first.
    if request.content_type != "application/json":
        raise InputInvalid("the body must be JSON, sent as Content-Type: application/json")
    try:
        return strict_json.parse((await request.read()).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputInvalid(f"the body is not UTF-8: byte {error.start}") from error
    except ContractError as error:
        raise InputInvalid(f"the body {error}") from error

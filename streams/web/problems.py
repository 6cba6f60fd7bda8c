"""Every refusal of a call as problem details (RFC 9457), with the fields `error`, `message` and `details` besides."""

import json
import logging
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from schemas.errors import (
    Conflict,
    ContractError,
    InputInvalid,
    JobCorrupt,
    NotFound,
    ResourceExhausted,
    WorkerError,
)

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/problem+json"

# The contract's word for each status; what is not listed is told by its error's own class below.
_CODES: Final[dict[type[WorkerError], tuple[str, int]]] = {
    InputInvalid: ("invalid-input", 400),
    ContractError: ("invalid-input", 400),
    NotFound: ("unknown-action", 404),
    Conflict: ("conflict", 409),
    JobCorrupt: ("job-corrupt", 422),
    ResourceExhausted: ("resource-exhausted", 429),
}


def code_of(error: WorkerError) -> tuple[str, int]:
    """Return the contract's word for *error* and its HTTP status. What may be repeated is `unavailable`, 503."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    return ("unavailable", 503) if error.retryable else ("job-corrupt", 422)


def problem(error: WorkerError) -> web.Response:
    """Return the answer that tells a caller what was wrong with the call, and where."""
    code, status = code_of(error)
    details: dict[str, object] = dict(error.details) if isinstance(error, Conflict) else {}
    if isinstance(error, InputInvalid) and error.pointer:
        details["pointer"] = error.pointer
    return problem_of(code, status, str(error), details)


def problem_of(code: str, status: int, message: str, details: dict[str, object] | None = None) -> web.Response:
    """Return problem details with `title` as the code in words and `detail` as the message."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": code.replace("-", " ").capitalize(),
        "status": status,
        "detail": message,
        "error": code,
        "message": message,
    }
    if details:
        body["details"] = details
    headers = {"Retry-After": "1"} if status == 503 else None
    text = json.dumps(body, ensure_ascii=True)
    return web.Response(status=status, text=text, content_type=CONTENT_TYPE, headers=headers)


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what a handler raises into problem details. An error nobody expected is logged whole and answered bare."""
    try:
        return await handler(request)
    except WorkerError as error:
        return problem(error)
    except web.HTTPRequestEntityTooLarge as error:
        return problem_of("invalid-input", 413, f"the body is too large: {error.text}")
    except web.HTTPException as error:
        code = "unknown-action" if error.status == 404 else "invalid-input"
        return problem_of(code, error.status, f"{request.method} {request.path}: {error.reason}")
    except Exception:  # the edge: a bug must neither end the connection unexplained nor leak its text
        log.exception("%s %s failed", request.method, request.path)
        return problem_of("internal", 500, "the worker failed to answer; its log says why")

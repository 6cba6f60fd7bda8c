"""The child process that evaluates: reads one request after the other from its input, and answers on its output.

    python -I -c "<start>" <root> <memory bytes> <cpu seconds>

It sets limits on itself. An operation that takes more processor time than it is given ends the process: nothing else
can end a call that never returns to the interpreter.
"""

import os
import resource
import signal
import sys
from typing import BinaryIO, Final

from streams.evaluator.all_operations import operations_beside
from streams.evaluator.frames import LENGTH, READY, FrameInvalid, body_length, decode, encode
from streams.evaluator.operations import LoadedSchemas, Refused, SchemaUnknown, perform

ERROR_BYTES: Final = 1 << 20
"""What libraries may write to the standard error, which is a file."""


def main(arguments: list[str]) -> None:
    """Serve until the input ends."""
    memory_bytes, seconds = int(arguments[0]), float(arguments[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (ERROR_BYTES, ERROR_BYTES))
    # A Ctrl-C or a stop of the whole group is the parent's to answer; the child ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not end up among the answers
    schemas = LoadedSchemas()
    while (body := _next(requests)) is not None:
        answers.write(_answer(schemas, body, seconds))
        answers.flush()


def _next(requests: BinaryIO) -> bytes | None:
    prefix = requests.read(LENGTH.size)
    if len(prefix) < LENGTH.size:
        return None
    length = body_length(prefix)
    body = requests.read(length)
    return body if len(body) == length else None


def _answer(schemas: LoadedSchemas, body: bytes, seconds: float) -> bytes:
    try:
        request, blobs = decode(body)
        if request["operation"] == READY:
            return encode({"ok": True})
        operations = operations_beside(request["operation"])  # loading an engine is not the request's own work
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer, answered = perform(operations, schemas, request, blobs)
        return encode({**answer, "ok": True}, answered)
    except SchemaUnknown:
        return encode({"ok": False, "unknown_schema": True})
    except Refused as error:
        return encode({"ok": False, "refused": str(error), "worn": error.worn})
    except FrameInvalid as error:
        return encode({"ok": False, "refused": f"the answer is too long: {error}"})
    except MemoryError:  # there was room for the answer, and not for its frame
        return encode({"ok": False, "refused": "the answer is too long", "worn": True})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)

"""Two example gRPC services: `python -m streams.dev.services tokenizer|embedder --port N --calls FILE`.

Every call is told to the file as two JSON lines, when it begins and when it ends, so that somebody outside can count
calls and see one in flight. A call can be scripted by a word in its request: refused once, or answered late.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from streams.dev.ports import LOOPBACK
from streams.dev.protoc import compile_protos

WORKFLOWS: Final = Path(__file__).with_name("workflows")
"""The folder of the example workflow `embed-text.json` and the .proto files of its services."""


@dataclass(frozen=True, slots=True)
class Service:
    """One unary method: how its words are read from a request, and what it answers to them."""

    name: str
    method: str
    words: Callable[[Any], Sequence[str]]
    reply: Callable[[Sequence[str]], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Script:
    """What a word in a request makes a service do."""

    unavailable_once: frozenset[str]
    slow: frozenset[str]
    slow_seconds: float


def _number_of(token: str) -> float:
    return round(int.from_bytes(hashlib.sha256(token.encode()).digest()[:4]) / 2**32, 6)


SERVICES: Final[Mapping[str, Service]] = {
    "tokenizer": Service(
        "acme.v1.Tokenizer", "Tokenize", lambda request: request.text.split(), lambda words: {"tokens": list(words)}
    ),
    "embedder": Service(
        "acme.v1.Embedder",
        "Embed",
        lambda request: request.tokens,
        lambda words: {"vector": [_number_of(word) for word in words]},
    ),
}


class RecordedService:
    """A service that does as its script says and records its calls."""

    def __init__(self, service: Service, script: Script, calls: IO[str]) -> None:
        self._service = service
        self._script = script
        self._calls = calls
        self._refused: set[tuple[str, str]] = set()

    def handlers(self) -> grpc.GenericRpcHandler:  # type: ignore[type-arg]  # generic in the stubs alone
        """Return what a gRPC server serves."""
        request_class, reply_class = _message_classes(self._service)

        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            words = self._service.words(request)
            await self._play(words, context)
            return reply_class(**self._service.reply(words))

        method = grpc.unary_unary_rpc_method_handler(
            answer, request_deserializer=request_class.FromString, response_serializer=reply_class.SerializeToString
        )
        return grpc.method_handlers_generic_handler(self._service.name, {self._service.method: method})

    async def _play(self, words: Sequence[str], context: grpc.aio.ServicerContext[Any, Any]) -> None:
        metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        call = {
            "service": self._service.name,
            "job_id": metadata.get("job-id", ""),
            "step": metadata.get("step-name", ""),
            "attempt": int(metadata.get("attempt", "0")),
            "traceparent": metadata.get("traceparent", ""),
        }
        refusal = self._refuses(str(call["job_id"]), words)
        status = "UNAVAILABLE" if refusal else "OK"
        self._tell("begun", call, status)
        try:
            await asyncio.sleep(self._script.slow_seconds if self._script.slow.intersection(words) else 0)
        except asyncio.CancelledError:
            self._tell("ended", call, "CANCELLED")
            raise
        self._tell("ended", call, status)
        if refusal:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"refused once, for the word {refusal}")

    def _refuses(self, job_id: str, words: Sequence[str]) -> str | None:
        for word in self._script.unavailable_once.intersection(words):
            if (job_id, word) not in self._refused:
                self._refused.add((job_id, word))
                return word
        return None

    def _tell(self, event: str, call: Mapping[str, object], status: str) -> None:
        # `status` is what the call will be answered, or was: a call is told before its wait begins.
        entry = {"event": event, "time": time.time(), **call, "status": status}
        self._calls.write(json.dumps(entry) + "\n")
        self._calls.flush()


def _message_classes(service: Service) -> tuple[Any, Any]:
    sources = {str(path.relative_to(WORKFLOWS)): path.read_text() for path in WORKFLOWS.glob("acme/v1/*.proto")}
    pool = DescriptorPool()
    for file in compile_protos(sources):
        pool.Add(file)
    method = pool.FindServiceByName(service.name).methods_by_name[service.method]
    return GetMessageClass(method.input_type), GetMessageClass(method.output_type)


async def serve(service: RecordedService, port: int) -> None:
    """Serve on 127.0.0.1 until cancelled."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([service.handlers()])
    server.add_insecure_port(f"{LOOPBACK}:{port}")
    await server.start()
    await server.wait_for_termination()


def main(arguments: Sequence[str]) -> None:
    """Serve what the command line says until a signal comes."""
    options = _parser().parse_args(arguments)
    # The tokenizer comes first in the example workflow: unless told to, it lets the words pass to the embedder.
    obeys = options.service == "embedder"
    script = Script(
        unavailable_once=frozenset(options.unavailable_once or (["unavailable-once"] if obeys else [])),
        slow=frozenset(options.slow or (["slow"] if obeys else [])),
        slow_seconds=options.slow_seconds,
    )
    with options.calls.open("a", encoding="utf-8") as calls, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(RecordedService(SERVICES[options.service], script, calls), options.port))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m streams.dev.services", description="An example gRPC service.")
    parser.add_argument("service", choices=SERVICES)
    parser.add_argument("--port", type=int, required=True, help="the port of 127.0.0.1 to listen on")
    parser.add_argument("--calls", type=Path, required=True, help="the file that gets a JSON line for each call")
    parser.add_argument(
        "--unavailable-once",
        action="append",
        metavar="WORD",
        help="answer UNAVAILABLE to the first call of a job that has this word (embedder: unavailable-once)",
    )
    parser.add_argument(
        "--slow", action="append", metavar="WORD", help="answer late when it has this word (embedder: slow)"
    )
    parser.add_argument("--slow-seconds", type=float, default=3.0, help="how late that is (default: 3)")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])

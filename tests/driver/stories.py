"""Workflows for tests of the driver, and what their services answer."""

from typing import Any

from streams.evaluator.evaluators import InProcessEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.workflow.compiler import Compiled, compile_definition
from tests.fixtures.grpc_server import Answer

TOKENIZE = "/text.v1.Tokenizer/Tokenize"
EMBED = "/text.v1.Embedder/Embed"

_SOURCE = """
syntax = "proto3";
package text.v1;
message Text { string text = 1; }
message Tokens { repeated string tokens = 1; }
message Texts { repeated Text texts = 1; }
message AllTokens { repeated Tokens all = 1; }
message Vector { repeated double vector = 1; }
message Review { bool approved = 1; }
message Result { string text = 1; repeated double vector = 2; }
service Tokenizer { rpc Tokenize(Text) returns (Tokens); }
service Embedder { rpc Embed(Tokens) returns (Vector); }
service Desk { rpc Decide(Text) returns (Review); }
"""

_TOKENIZE_STEP = {
    "name": "tokenize",
    "target": "tokenizer",
    "method": "text.v1.Tokenizer/Tokenize",
    "rules": ["text = input.text"],
}
_EMBED_STEP = {
    "name": "embed",
    "target": "embedder",
    "method": "text.v1.Embedder/Embed",
    "rules": ["tokens = tokenize.tokens"],
}
_REVIEW_STEP = {
    "name": "review",
    "method": "text.v1.Desk/Decide",
    "completion": "external",
    "rules": ["text = input.text"],
}

TOKENS = Answer(b"\n\x01a")  # Tokens{tokens: ["a"]}
VECTOR = Answer(b"\n\x08" + b"\0" * 6 + b"\xf0\x3f")  # Vector{vector: [1.0]}


def embed_text(*, deadline_ms: int = 30_000, steps: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Two calls, one after the other, and an output mapping."""
    return {
        "name": "embed-text",
        "schema": {"sources": {"text.proto": _SOURCE}, "root": "text.proto"},
        "inputType": "text.v1.Text",
        "deadlineMs": deadline_ms,
        "steps": [_TOKENIZE_STEP, _EMBED_STEP] if steps is None else steps,
        "output": {"type": "text.v1.Result", "rules": ["text = input.text", "vector = embed.vector"]},
    }


def embed_reviewed_text() -> dict[str, Any]:
    """As `embed_text`, with a step between the calls that somebody outside answers."""
    return embed_text(steps=[_TOKENIZE_STEP, _REVIEW_STEP, _EMBED_STEP])


def embed_each() -> dict[str, Any]:
    """As `embed_text`, with the first step fanned out over a single item."""
    edge = {"sources": ["input"], "produceType": "text.v1.Texts", "rules": ["texts += input"]}
    fan_out = {
        "items": "texts",
        "maxItems": 1,
        "maxConcurrency": 1,
        "failurePolicy": "FAIL_FAST",
        "collectType": "text.v1.AllTokens",
        "collectInto": "all",
    }
    first = {key: value for key, value in _TOKENIZE_STEP.items() if key != "rules"} | {"edge": edge, "fanOut": fan_out}
    return embed_text(steps=[first, {**_EMBED_STEP, "rules": ["tokens += input.text"]}])


def embed_after_a_pause(for_ms: int) -> dict[str, Any]:
    """As `embed_text`, with a wait between the calls."""
    return embed_text(steps=[_TOKENIZE_STEP, {"name": "pause", "wait": {"forMs": for_ms}}, _EMBED_STEP])


def embed_text_reviewed_within(answer_within_ms: int, **review: object) -> dict[str, Any]:
    """As `embed_reviewed_text`, and nobody waits for the review for longer than that."""
    review_step = {**_REVIEW_STEP, "answerWithinMs": answer_within_ms, **review}
    return embed_text(steps=[_TOKENIZE_STEP, review_step, _EMBED_STEP])


def embed_only(*, step_deadline_ms: int = 0, deadline_ms: int = 30_000) -> dict[str, Any]:
    """A single call, to the second service."""
    step = {**_EMBED_STEP, "rules": ["tokens += input.text"], "deadlineMs": step_deadline_ms}
    return embed_text(steps=[step], deadline_ms=deadline_ms)


def tokenize_thrice() -> dict[str, Any]:
    """The same call three times, under three names; the input is the result."""
    steps = [{**_TOKENIZE_STEP, "name": f"tokenize{number}"} for number in range(3)]
    return {**embed_text(steps=steps), "output": {"type": "text.v1.Text", "rules": ["text = input.text"]}}


class Compiler:
    """Compiles definitions. The compiler child keeps its results, so the schema is compiled once for all tests."""

    def __init__(self) -> None:
        self._protoc = ProtocChild()

    async def __call__(self, document: dict[str, Any]) -> Compiled:
        return await compile_definition(document, protoc=self._protoc, evaluator=InProcessEvaluator())

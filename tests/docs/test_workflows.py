"""The guide to the workflow language: its examples compile, and every key of the language stands in it."""

import json
import re
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from schemas.errors import DefinitionInvalid, HandlerRejected, SettingsInvalid
from streams.calls.targets import read_targets
from streams.evaluator import bounds
from streams.evaluator.evaluators import InProcessEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.evaluator.rule_operations import LISTED
from streams.handlers.calls import HandlerCalls, OnBehalf
from streams.handlers.registry import load_registry
from streams.metrics import Metrics
from streams.sources.definition_files import read_definition_file
from streams.sources.schema_files import embedded
from streams.workflow.compiler import Compiled, compile_definition
from streams.workflow.definition import DEFAULT_DEADLINE_MS
from streams.workflow.descriptors import SchemaSet
from streams.workflow.limits import MAX_EXPRESSION_BYTES, MAX_FAN_OUT_CONCURRENCY, MAX_FAN_OUT_ITEMS
from streams.workflow.runner import CallRequest, Completed, run_segment
from tests.docs.markdown import ROOT, blocks, links
from tests.fixtures.certificates import Authority

GUIDE = ROOT / "docs" / "workflows.md"
TEXT = GUIDE.read_text("utf-8")
PROTOC = ProtocChild()


async def compiled(document: dict[str, Any]) -> Compiled:
    document["schema"]["sources"]["shop.proto"] = blocks(TEXT, "proto")[0]
    return await compile_definition(document, protoc=PROTOC, evaluator=InProcessEvaluator())


def example() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(blocks(TEXT, "json workflow")[0])
    return document


@pytest.mark.parametrize("block", blocks(TEXT, "json workflow"))
async def test_every_workflow_it_shows_compiles(block: str) -> None:
    await compiled(json.loads(block))


@pytest.mark.parametrize("block", blocks(TEXT, "json step"))
async def test_every_step_it_shows_compiles_behind_the_input(block: str) -> None:
    step = json.loads(block)
    document = example()
    await compiled({**{key: document[key] for key in ("schema", "inputType")}, "steps": [step]})


@pytest.mark.parametrize("block", blocks(TEXT, "yaml workflow"))
async def test_every_file_it_shows_compiles_beside_the_files_that_it_names(block: str, tmp_path: Path) -> None:
    (tmp_path / "shop.proto").write_text(blocks(TEXT, "proto")[0])
    (tmp_path / "order.yaml").write_text(block)
    file = read_definition_file(tmp_path / "order.yaml")

    await compile_definition(embedded(file.document, tmp_path), protoc=PROTOC, evaluator=InProcessEvaluator())


def test_every_key_of_a_target_stands_in_the_file_of_targets_it_shows(tmp_path: Path) -> None:
    [block] = blocks(TEXT, "yaml targets")
    authority = Authority()
    worker = authority.issue("worker")
    for name, content in {
        "targets.yaml": block.encode(),
        "ca.pem": authority.certificate,
        "worker.pem": worker.certificate,
        "worker.key": worker.key,
        "pricing.token": b"token",
    }.items():
        (tmp_path / name).write_bytes(content)

    targets = read_targets(tmp_path / "targets.yaml", default_permits=8)

    assert {name: target.address for name, target in targets.items()} == {
        "pricing": "pricing.internal:443",
        "mailer": "10.0.0.7:9000",
    }
    (tmp_path / "targets.yaml").write_text("a: {noSuchKey: 1}")
    with pytest.raises(SettingsInvalid, match="known are") as refused:
        read_targets(tmp_path / "targets.yaml", default_permits=8)
    known = re.findall(r"\w+", str(refused.value.problems[0]).partition("known are ")[2])
    assert [key for key in known if f"{key}:" not in block] == []


@pytest.mark.parametrize("place", [(), ("steps", 0), ("steps", 2, "celRules", 0), ("output",)])
async def test_every_key_of_the_language_stands_in_it(place: tuple[str | int, ...]) -> None:
    document = example()
    inner: Any = document
    for part in place:
        inner = inner[part]
    inner["noSuchKey"] = True

    with pytest.raises(DefinitionInvalid, match="no key here") as caught:
        await compiled(document)

    [finding] = caught.value.findings
    known = re.findall(r"\w+", finding.error.partition("known: ")[2])
    assert len(known) > 3 or place == ("output",)
    assert [key for key in known if f"`{key}`" not in TEXT and f'"{key}"' not in TEXT] == []


@pytest.mark.parametrize("key", ["edge", "fanOut"])
async def test_every_key_of_a_step_that_fans_out_stands_in_it(key: str) -> None:
    [step] = [step for block in blocks(TEXT, "json step") if "fanOut" in (step := json.loads(block))]
    document = example()
    document["steps"] = [step]
    del document["output"]
    step[key]["noSuchKey"] = True

    with pytest.raises(DefinitionInvalid, match="no key here") as caught:
        await compiled(document)

    [finding] = caught.value.findings
    known = re.findall(r"\w+", finding.error.partition("known: ")[2])
    projections = {"projectTo", "projection", "projections"}  # known to be refused
    assert [name for name in known if name not in projections and f"`{name}`" not in TEXT] == []


async def test_the_handlers_it_shows_do_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "handlers_of_the_guide.py").write_text(blocks(TEXT, "python handler")[0])
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_registry(["handlers_of_the_guide"])
    [step] = [one for block in blocks(TEXT, "json step") if (one := json.loads(block)).get("target") == "local"]
    document = example()
    plan = (await compiled({**{key: document[key] for key in ("schema", "inputType")}, "steps": [step]})).plan
    calls = HandlerCalls(registry, metrics=Metrics())

    async def call(request: CallRequest) -> bytes:
        on_behalf = OnBehalf(uuid4(), "default", 1, lambda done, total: None)
        return await calls(request, on_behalf, schemas=plan.schema_set)

    async def checkpoint(*_: object, **__: object) -> None: ...

    async def run(cents: int) -> object:
        given = plan.parse_input({"cents": cents})
        done = await run_segment(
            plan, given, [], call=call, checkpoint=checkpoint, clock=time.monotonic, evaluator=InProcessEvaluator()
        )
        assert isinstance(done, Completed)
        return done.result

    assert await run(21) == {"cents": "42", "currency": "EUR"}
    with pytest.raises(HandlerRejected, match="less than nothing"):
        await run(-1)
    assert registry.job_types == ["reindex"]


async def test_the_rules_it_shows_hold_as_it_says() -> None:
    [rules] = blocks(TEXT, "proto rules")
    schemas = SchemaSet.from_bytes(await PROTOC({"parcel.proto": rules}, None))
    given = schemas.parse_json("parcel.v1.Parcel", {"code": "x", "cents": 100_000, "tags": ["a", "b", ""]})

    evaluator = InProcessEvaluator()
    assert await evaluator.broken_rules(schemas, "parcel.v1.Parcel") == []
    [rejection] = (await evaluator.rejections(schemas, given)).values()

    assert [(violation.path, violation.rule_id) for violation in rejection.violations] == [
        ("", "parcel.insured"),
        ("code", "string.pattern"),
        ("tags[2]", "string.min_len"),
    ]
    assert f"up to {LISTED} of them" in TEXT


def test_the_limits_it_names_are_those_that_hold() -> None:
    for limit in (
        f"| Length | {MAX_EXPRESSION_BYTES:,} bytes |",
        f"| Macros | {bounds.MAX_MACROS}, of which {bounds.MAX_MACRO_NESTING} inside each other |",
        f"| `join`, `replace`, `format`, `split` | {bounds.MAX_BUILDERS} calls |",
        f"| List that `map` or `filter` builds | {bounds.MAX_ELEMENTS:,} elements |",
        f"| `deadlineMs` | {DEFAULT_DEADLINE_MS} |",
        f"| `maxItems` | required | 1 to {MAX_FAN_OUT_ITEMS:,}.",
        f"| `maxConcurrency` | required | 1 to {MAX_FAN_OUT_CONCURRENCY} ",
    ):
        assert limit in TEXT
    assert set(bounds.BUILDERS) == {"join", "replace", "format", "split"}


def test_every_link_leads_somewhere() -> None:
    assert [target for target in links(TEXT) if not (GUIDE.parent / target).exists()] == []
    headings = {heading.strip("# ").lower().replace(" ", "-") for heading in re.findall(r"^#+ .*$", TEXT, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([^)]*)\)", TEXT)) <= headings

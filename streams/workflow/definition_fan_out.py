"""Edges and fan-outs of a step, read strictly into typed parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streams.workflow.definition_cel import CelRuleDefinition, read_cel_rules, rule_count
from streams.workflow.document import ObjectReader, Path
from streams.workflow.findings import Findings
from streams.workflow.json_values import shown
from streams.workflow.limits import (
    MAX_FAN_OUT_CONCURRENCY,
    MAX_FAN_OUT_ITEMS,
    MAX_NAME_LENGTH,
    MAX_RULE_LENGTH,
    MAX_TYPE_NAME_LENGTH,
)

_PROJECTIONS: Final = ("projectTo", "projection", "projections")


class FailurePolicy(StrEnum):
    """What one failed item means: the end of the step, or a gap in what it collects."""

    FAIL_FAST = "FAIL_FAST"
    CONTINUE = "CONTINUE"


@dataclass(frozen=True, slots=True)
class EdgeDefinition:
    """What a step is given instead of its own rules: a message of `produce_type`, built from `sources` alone.

    `validate` asks for the rules of that type.
    """

    sources: tuple[str, ...]
    produce_type: str
    rules: tuple[str, ...]
    cel_rules: tuple[CelRuleDefinition, ...]
    validate: bool
    path: Path

    @property
    def rule_count(self) -> int:
        """How many mapping rules it has, each fallback rule counted too."""
        return len(self.rules) + rule_count(self.cel_rules)


@dataclass(frozen=True, slots=True)
class FanOutDefinition:
    """One call for each item of what the edge produces. `failure_policy` None: it is neither of the two.

    `aligned` asks for a gap where an item failed, so that what is collected stands at the places of the items.
    """

    items: str
    max_items: int
    max_concurrency: int
    failure_policy: FailurePolicy | None
    collect_type: str
    collect_into: str
    aligned: bool
    path: Path


def read_edge(holder: ObjectReader, findings: Findings, *, step: str) -> EdgeDefinition | None:
    """Read the member `edge` of a step; None when it is absent or no object."""
    reader = _reader(holder, "edge", findings, step, kind="edge")
    if reader is None:
        return None
    edge = EdgeDefinition(
        sources=_sources(reader),
        produce_type=reader.text("produceType", required=True, longest=MAX_TYPE_NAME_LENGTH),
        rules=reader.texts("rules"),
        cel_rules=read_cel_rules(reader, reader.path, findings, step=step, kind="edge"),
        validate=reader.flag("validate"),
        path=reader.path,
    )
    _refuse_projections(reader)
    reader.refuse_unknown()
    return edge


def read_fan_out(holder: ObjectReader, findings: Findings, *, step: str) -> FanOutDefinition | None:
    """Read the member `fanOut` of a step; None when it is absent or no object."""
    reader = _reader(holder, "fanOut", findings, step, kind="fanOut")
    if reader is None:
        return None
    fan_out = FanOutDefinition(
        items=reader.text("items", required=True, longest=MAX_RULE_LENGTH),
        max_items=_number(reader, "maxItems", MAX_FAN_OUT_ITEMS),
        max_concurrency=_number(reader, "maxConcurrency", MAX_FAN_OUT_CONCURRENCY),
        failure_policy=_policy(reader),
        collect_type=reader.text("collectType", required=True, longest=MAX_TYPE_NAME_LENGTH),
        collect_into=reader.text("collectInto", required=True, longest=MAX_NAME_LENGTH),
        aligned=reader.flag("aligned"),
        path=reader.path,
    )
    if fan_out.aligned and fan_out.failure_policy is FailurePolicy.FAIL_FAST:
        reader.fault("aligned goes with failurePolicy CONTINUE: with FAIL_FAST no item is left out", "aligned")
    _refuse_projections(reader)
    reader.refuse_unknown()
    return fan_out


def _reader(holder: ObjectReader, key: str, findings: Findings, step: str, *, kind: str) -> ObjectReader | None:
    members = holder.take(key)
    if not holder.has(key):
        return None
    if not isinstance(members, Mapping):
        holder.fault(f"{key} must be an object, not {shown(members)}", key, kind=kind)
        return None
    return ObjectReader(members, (*holder.path, key), findings, step=step, kind=kind)


def _sources(reader: ObjectReader) -> tuple[str, ...]:
    if not reader.has("sources"):
        reader.take("sources")
        reader.fault("sources is missing")
        return ()
    sources = reader.texts("sources")
    if reader.take("sources") == []:
        reader.fault("sources must name the input or an earlier step, at least one", "sources")
    for index, source in enumerate(sources):
        if source in sources[:index]:
            reader.fault(f"the source {shown(source)} is named twice", "sources", index)
    return sources


def _number(reader: ObjectReader, key: str, most: int) -> int:
    value = reader.take(key)
    if not reader.has(key):
        reader.fault(f"{key} is missing")
    elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        reader.fault(f"{key} must be an integer from 1 to {most:,}, not {shown(value)}", key)
    else:
        return value
    return 1


def _policy(reader: ObjectReader) -> FailurePolicy | None:
    value = reader.take("failurePolicy")
    if not reader.has("failurePolicy"):
        reader.fault("failurePolicy is missing")
    elif not isinstance(value, str) or value not in set(FailurePolicy):
        reader.fault(f"failurePolicy must be {' or '.join(FailurePolicy)}, not {shown(value)}", "failurePolicy")
    else:
        return FailurePolicy(value)
    return None


def _refuse_projections(reader: ObjectReader) -> None:
    for key in _PROJECTIONS:
        reader.take(key)
        if reader.has(key):
            way_out = "build the message with rules and celRules in the edge"
            reader.fault(f"{key} is not supported: there are no projections here; {way_out}", key)

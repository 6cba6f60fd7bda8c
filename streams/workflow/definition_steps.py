"""The steps of a definition, read strictly into typed parts.

Keys of the language that this version does not support yet are refused by name, never passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streams.workflow.definition_cel import CelRuleDefinition, read_cel_rules, rule_count
from streams.workflow.definition_fan_out import EdgeDefinition, FanOutDefinition, read_edge, read_fan_out
from streams.workflow.definition_kinds import KINDS, AskDefinition, KindDefinition, read_kind
from streams.workflow.document import ObjectReader, Path
from streams.workflow.findings import Findings
from streams.workflow.json_values import pointer_to, shown
from streams.workflow.limits import MAX_NAME_LENGTH, MAX_TARGET_LENGTH, MAX_TYPE_NAME_LENGTH
from streams.workflow.patience import ENDLESS, Patience, read_patience
from streams.workflow.retry import DEFAULT_RETRY, RetryPolicy, read_retry

EXTERNAL: Final = "external"
# What is no part of this engine, told by name to whoever brings a definition from elsewhere.
_NO_MODELS: Final = (
    "no model fills messages here; call it from a service, or from a handler in Python with the target local"
)
_NO_JOINS: Final = "streams are not joined here; join them in a service, and call a unary method of it"
_OTHER_KINDS: Final = ("structured", "streamJoin", *KINDS)


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step as written. `deadline_ms` 0 inherits what is left of the segment's budget.

    `kind` is what it does instead of calling a method, and `validate` asks for the rules of what the step gives.
    """

    name: str
    target: str
    method: str
    tls: bool
    rules: tuple[str, ...]
    deadline_ms: int
    completion: str
    index: int
    when: str = ""
    cel_rules: tuple[CelRuleDefinition, ...] = ()
    edge: EdgeDefinition | None = None
    fan_out: FanOutDefinition | None = None
    kind: KindDefinition | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    patience: Patience = ENDLESS
    validate: bool = False

    @property
    def path(self) -> Path:
        """Where the step stands in its document."""
        return ("steps", self.index)

    @property
    def pointer(self) -> str:
        """The JSON pointer of the step in its document."""
        return pointer_to(self.path)

    @property
    def rule_count(self) -> int:
        """How many mapping rules the step has, those of its parts included."""
        in_edge = self.edge.rule_count if self.edge is not None else 0
        return len(self.rules) + rule_count(self.cel_rules) + in_edge


def read_step(step: object, index: int, findings: Findings) -> StepDefinition | None:
    """Read one step, noting its faults. None when it has no name that could stand for it.

    What cannot be read keeps an empty text, an empty tuple or 0 there.
    """
    path = ("steps", index)
    if not isinstance(step, Mapping):
        findings.add(f"a step must be an object, not {shown(step)}", *path)
        return None
    name = ObjectReader(step, path, findings).text("name", required=True, longest=MAX_NAME_LENGTH)
    reader = ObjectReader(step, path, findings, step=name)
    reader.take("name")
    completion = _read_completion(reader)
    kind = read_kind(reader)
    # What else can stand in for a method is refused below by its own name; its absence is then no second fault.
    calls = not any(reader.has(key) for key in _OTHER_KINDS)
    definition = StepDefinition(
        name=name,
        target=reader.text("target", required=calls and completion != EXTERNAL, longest=MAX_TARGET_LENGTH),
        method=reader.text("method", required=calls, longest=MAX_TYPE_NAME_LENGTH),
        tls=reader.flag("tls"),
        rules=reader.texts("rules"),
        deadline_ms=reader.milliseconds("deadlineMs", lowest=0),
        completion=completion,
        index=index,
        when=_read_when(reader),
        cel_rules=read_cel_rules(reader, path, findings, step=name),
        edge=read_edge(reader, findings, step=name),
        fan_out=read_fan_out(reader, findings, step=name),
        kind=kind,
        retry=read_retry(reader, answered=completion == EXTERNAL),
        patience=read_patience(reader, answered=completion == EXTERNAL or isinstance(kind, AskDefinition)),
        validate=reader.flag("validate"),
    )
    reader.refuse("structured", _NO_MODELS, kind="structured")
    reader.refuse("streamJoin", _NO_JOINS, kind="workflow")
    reader.refuse_unknown()
    return definition if name else None


def _read_when(reader: ObjectReader) -> str:
    when = reader.expression("when", kind="when")
    if reader.has("when") and not when and isinstance(reader.take("when"), str):
        reader.fault("when must not be blank: leave it out for a step that always runs", "when", kind="when")
    return when


def _read_completion(reader: ObjectReader) -> str:
    completion = reader.take("completion")
    if completion is None and not reader.has("completion"):
        return ""
    if not isinstance(completion, str):
        reader.fault(f"completion must be text, not {shown(completion)}", "completion")
        return ""
    return completion

"""The CEL mapping rules of a definition, read strictly into typed parts."""

from collections.abc import Mapping
from dataclasses import dataclass

from streams.workflow.document import ObjectReader, Path
from streams.workflow.findings import Findings
from streams.workflow.json_values import shown
from streams.workflow.limits import MAX_RULE_LENGTH


@dataclass(frozen=True, slots=True)
class CelRuleDefinition:
    """One CEL rule as written. `filter` and `selector` are empty when absent or blank; `path` is where it stands."""

    filter: str
    selector: str
    target: str
    fallback: tuple[str, ...]
    path: Path


def read_cel_rules(
    holder: ObjectReader, path: Path, findings: Findings, *, step: str = "", kind: str = "celRule"
) -> tuple[CelRuleDefinition, ...]:
    """Read the member `celRules` of the object that *holder* reads at *path*; empty when absent."""
    rules = holder.take("celRules")
    if not holder.has("celRules"):
        return ()
    if not isinstance(rules, list):
        holder.fault(f"celRules must be an array, not {shown(rules)}", "celRules", kind=kind)
        return ()
    read = []
    for index, rule in enumerate(rules):
        if findings.full:
            break
        if not isinstance(rule, Mapping):
            holder.fault(f"a CEL rule must be an object, not {shown(rule)}", "celRules", index, kind=kind)
            continue
        read.append(_read_rule(ObjectReader(rule, (*path, "celRules", index), findings, step=step, kind=kind)))
    return tuple(read)


def _read_rule(reader: ObjectReader) -> CelRuleDefinition:
    rule = CelRuleDefinition(
        filter=reader.expression("filter"),
        selector=reader.expression("selector"),
        target=reader.text("target", required=True, longest=MAX_RULE_LENGTH),
        fallback=reader.texts("fallback"),
        path=reader.path,
    )
    reader.refuse_unknown()
    return rule


def rule_count(rules: tuple[CelRuleDefinition, ...]) -> int:
    """How many rules they are, each fallback rule counted too."""
    return sum(1 + len(rule.fallback) for rule in rules)

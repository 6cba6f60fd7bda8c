"""A plan drawn as a Mermaid flowchart: one node a step, a diamond before each gated one."""

from typing import Final

from streams.verbs.step_facts import step_facts
from streams.workflow.plan import Plan, PlannedStep

_LONGEST: Final = 120
# The shape says whether the run rests there: answered from outside, woken by time, or gone through at once.
_SHAPES: Final = {"external": ("{{", "}}"), "ask": ("{{", "}}"), "wait": ("([", "])"), "publish": ("[/", "/]")}
_CODES: Final = str.maketrans({"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "\n": " "})

# Where the flow comes from: a node, and what is written on the way from it.
_From = tuple[str, str]


def flowchart(plan: Plan) -> str:
    """Return the text of the chart. Whatever people named or wrote is text in it, never syntax."""
    lines = ["flowchart TD", f"    input([{_text('input', plan.input_type)}])"]
    ways: list[_From] = [("input", "")]
    for step in plan.steps:
        node = f"step{step.index}"
        if step.gate is not None:
            gate = f"when{step.index}"
            lines += [f"    {gate}{{{_text(step.gate.source)}}}", *_arrows(ways, gate)]
            lines += [_node(step, node), *_arrows([(gate, "yes")], node)]
            ways = [(node, ""), (gate, "no")]
        else:
            lines += [_node(step, node), *_arrows(ways, node)]
            ways = [(node, "")]
    result = plan.output.type if plan.output is not None else "the last response"
    lines += [f"    output([{_text('output', result)}])", *_arrows(ways, "output")]
    return "\n".join(lines) + "\n"


def _node(step: PlannedStep, node: str) -> str:
    facts = step_facts(step)
    before, after = _SHAPES.get(str(facts["kind"]), ("[", "]"))
    told = [step.name, str(facts["kind"]) if facts["kind"] != "call" else ""]
    told += [str(facts.get(name, "")) for name in ("method", "topic", "until")]
    if "target" in facts:
        told.append(f"at {facts['target']}")
    if "forMs" in facts:
        told.append(f"{facts['forMs']} ms")
    return f"    {node}{before}{_text(*(part for part in told if part))}{after}"


def _arrows(ways: list[_From], node: str) -> list[str]:
    return [f"    {source} -->{f'|{label}|' if label else ''} {node}" for source, label in ways]


def _text(*parts: str) -> str:
    cut = (part if len(part) <= _LONGEST else f"{part[:_LONGEST]}..." for part in parts)
    return '"' + "<br/>".join(part.translate(_CODES) for part in cut) + '"'

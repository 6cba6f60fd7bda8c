"""A plan as plain facts: what people ask of a workflow before they read it."""

from streams.verbs.answers import Answer
from streams.workflow.composition import Composition
from streams.workflow.plan import (
    Plan,
    PlannedAnswer,
    PlannedAsk,
    PlannedCall,
    PlannedFanOut,
    PlannedPublish,
    PlannedStep,
    PlannedWait,
)


def described_plan(plan: Plan) -> Answer:
    """Return its types, limits and steps. What is not set is left out."""
    output = plan.output
    facts: Answer = {
        "name": plan.name,
        "inputType": plan.input_type,
        "validate": plan.validates_input or None,
        "outputType": output.type if output is not None else None,
        "deadlineMs": plan.budget_ms,
        "runDeadlineMs": plan.run_deadline_ms,
        "engineLevel": plan.engine_level,
        "steps": [step_facts(step) for step in plan.steps],
        "outputRules": rule_count(output.mapping) if output is not None else None,
    }
    return _present(facts)


def step_facts(step: PlannedStep) -> Answer:
    """Return what one step does: its `kind`, and what belongs to that kind."""
    return _present(
        {
            "name": step.name,
            **_of_work(step),
            "responseType": step.output_type,
            "when": step.gate.source if step.gate is not None else None,
            "validate": step.validates or None,
            "attempts": step.retry.attempts or None,
        }
    )


def rule_count(composition: Composition) -> int:
    """How many rules build the message, those in CEL included."""
    return len(composition.mapping.rules) + len(composition.cel_rules)


def _of_work(step: PlannedStep) -> Answer:
    match step.work:
        case PlannedCall() as call:
            return {"kind": "call", **_of_call(call)}
        case PlannedFanOut() as fan_out:
            return {
                "kind": "fan-out",
                **_of_call(fan_out.call),
                "maxItems": fan_out.max_items,
                "maxConcurrency": fan_out.max_concurrency,
                "failurePolicy": str(fan_out.failure_policy),
                "aligned": fan_out.aligned,
            }
        case PlannedAnswer() as answer:
            return {"kind": "external", **_of_message(answer.input_type, answer.request)}
        case PlannedAsk() as ask:
            return {"kind": "ask", "topic": ask.topic, **_of_message(ask.input_type, ask.request)}
        case PlannedPublish() as publish:
            key = publish.key.source if publish.key is not None else None
            message = _of_message(publish.type, publish.value)
            return {"kind": "publish", "topic": publish.topic, "key": key, **message}
        case PlannedWait() as wait:
            until = wait.until.source if wait.until is not None else None
            return {"kind": "wait", "forMs": None if until is not None else wait.for_ms, "until": until}


def _of_call(call: PlannedCall) -> Answer:
    return {
        "target": call.target,
        "tls": call.tls or None,
        "method": call.method_path.removeprefix("/"),
        "deadlineMs": call.deadline_ms or None,
        **_of_message(call.input_type, call.request),
    }


def _of_message(type_name: str, composition: Composition) -> Answer:
    return {"requestType": type_name, "rules": rule_count(composition)}


def _present(facts: Answer) -> Answer:
    return {name: value for name, value in facts.items() if value is not None}

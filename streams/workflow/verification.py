"""Verifying: a definition that was read, against its schema, becomes a plan and every finding there is.

One walk compiles and checks. A step of another kind has a module of its own, which is given what it needs of the walk.
"""

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from schemas.errors import InputInvalid
from streams.workflow.definition import Definition
from streams.workflow.definition_steps import EXTERNAL, StepDefinition
from streams.workflow.descriptors import SchemaSet
from streams.workflow.document import Path
from streams.workflow.findings import Findings
from streams.workflow.mapping import CompiledMapping, compile_rule
from streams.workflow.names import (
    HANDLER_TARGET,
    JOB_METHOD,
    fault_in_step_name,
    fault_in_target,
    handler_target,
    is_job_target,
)
from streams.workflow.plan import Plan, PlannedAnswer, PlannedCall, PlannedOutput, PlannedStep, Work
from streams.workflow.rule_text import RuleInvalid


class Verification:
    """Goes through the steps in order; each sees the types of `input` and of the steps before it.

    The plan may be run only when there are no findings.
    """

    def __init__(self, definition: Definition, schemas: SchemaSet, findings: Findings) -> None:
        self._definition = definition
        self._schemas = schemas
        self._findings = findings
        self._scope: dict[str, Descriptor | None] = {}

    def plan(self, name: str | None) -> Plan:
        """Verify and compile all of it. *name* has precedence over the definition's own."""
        definition = self._definition
        input_type = self._input_type()
        self._scope["input"] = input_type
        steps = [planned for step in definition.steps if (planned := self._step(step)) is not None]
        return Plan(
            name=name or definition.name,
            input_type=input_type.full_name if input_type is not None else "",
            budget_ms=definition.deadline_ms,
            steps=tuple(steps),
            output=self._output(),
            schema_set=self._schemas,
        )

    def _input_type(self) -> Descriptor | None:
        given = self._definition.input_type
        name = given or self._schemas.default_message()
        if name is None:
            self._findings.add("inputType is missing, and the schema has not exactly one message to stand in for it")
            return None
        try:
            return self._schemas.message(name)
        except InputInvalid as error:
            self._findings.add(f"inputType: {error}", "inputType")
            return None

    def _step(self, step: StepDefinition) -> PlannedStep | None:
        fault = fault_in_step_name(step.name)
        if fault is None and step.name in self._scope:
            fault = f"the step name {step.name} is used twice"
        if fault is not None:
            self._fault(step, "workflow", fault, "name")
            return None
        self._check_completion_and_target(step)
        method = self._method(step)
        work = self._work(step, method) if method is not None else None
        self._scope[step.name] = method.output_type if method is not None else None
        if method is None or work is None:
            return None
        return PlannedStep(index=step.index, name=step.name, work=work, output_type=method.output_type.full_name)

    def _work(self, step: StepDefinition, method: MethodDescriptor) -> Work:
        input_type = method.input_type.full_name
        request = self._rules(step.rules, method.input_type, (*step.path, "rules"), kind="rule", step=step.name)
        if step.completion == EXTERNAL:
            return PlannedAnswer(input_type, request)
        return PlannedCall(
            target=handler_target(step.method) if step.target == HANDLER_TARGET else step.target,
            tls=step.tls,
            method_path="/" + step.method,
            deadline_ms=step.deadline_ms,
            input_type=input_type,
            request=request,
        )

    def _fault(self, step: StepDefinition, kind: str, error: str, *inner: str | int) -> None:
        self._findings.add(error, *step.path, *inner, kind=kind, step=step.name)

    def _check_completion_and_target(self, step: StepDefinition) -> None:
        if step.completion not in ("", EXTERNAL):
            self._fault(step, "completion", f'completion must be "" or "{EXTERNAL}"', "completion")
        in_process = step.target == HANDLER_TARGET or is_job_target(step.target)
        if step.target and not in_process and (fault := fault_in_target(step.target)):
            self._fault(step, "workflow", fault, "target")
        if in_process and step.tls:
            self._fault(step, "workflow", f"tls is of no use: {step.target} is served in the worker's process", "tls")
        if is_job_target(step.target) and step.method != JOB_METHOD:
            self._fault(step, "workflow", f"a job type is called by the method {JOB_METHOD} alone", "method")

    def _method(self, step: StepDefinition) -> MethodDescriptor | None:
        if not step.method:
            return None
        try:
            method = self._schemas.method(step.method)
        except InputInvalid as error:
            self._fault(step, "workflow", f"method: {error}", "method")
            return None
        if method.client_streaming or method.server_streaming:
            self._fault(step, "method", f"{step.method} is a streaming method: a step calls unary ones", "method")
        return method

    def _rules(
        self, texts: Sequence[str], target: Descriptor, path: Path, *, kind: str, step: str = ""
    ) -> CompiledMapping:
        compiled = []
        for index, text in enumerate(texts):
            if self._findings.full:
                break
            try:
                compiled.append(compile_rule(text, target, self._scope, self._schemas))
            except RuleInvalid as error:
                fault = f"rule {text!r}: {error}" if text.strip() else str(error)
                self._findings.add(fault, *path, index, kind=kind, step=step)
        return CompiledMapping.into(target, compiled)

    def _output(self) -> PlannedOutput | None:
        output = self._definition.output
        if output is None or not output.type:
            return None
        try:
            descriptor = self._schemas.message(output.type)
        except InputInvalid as error:
            self._findings.add(f"type: {error}", "output", "type", kind="output")
            return None
        mapping = self._rules(output.rules, descriptor, ("output", "rules"), kind="output")
        return PlannedOutput(descriptor.full_name, mapping)

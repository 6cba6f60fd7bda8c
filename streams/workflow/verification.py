"""Verifying: a definition that was read, against its schema, becomes a plan and every finding there is.

One walk compiles and checks. A step of another kind has a module of its own, which is given what it needs of the walk.
"""

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor, MethodDescriptor

from schemas.errors import InputInvalid
from streams.workflow.cel import BOOL, Expression, check_expression
from streams.workflow.cel_rules import CelRules
from streams.workflow.composition import Composition
from streams.workflow.definition import Definition
from streams.workflow.definition_cel import CelRuleDefinition
from streams.workflow.definition_steps import EXTERNAL, StepDefinition
from streams.workflow.descriptors import SchemaSet
from streams.workflow.document import Path
from streams.workflow.evaluation import Evaluator, ExpressionRefused
from streams.workflow.findings import Findings
from streams.workflow.mapping import CompiledMapping, CompiledRule, ScopeTypes, compile_rule
from streams.workflow.names import (
    HANDLER_TARGET,
    JOB_METHOD,
    fault_in_step_name,
    fault_in_target,
    handler_target,
    is_job_target,
)
from streams.workflow.plan import Plan, PlannedAnswer, PlannedCall, PlannedFanOut, PlannedOutput, PlannedStep, Work
from streams.workflow.rule_text import RuleInvalid
from streams.workflow.verify_edge import EdgeVerification
from streams.workflow.verify_kinds import verify_kind
from streams.workflow.verify_rules import RuleVerification


class Verification:
    """Goes through the steps in order; each sees the types of `input` and of the steps before it.

    The plan may be run only when there are no findings.
    """

    def __init__(self, definition: Definition, schemas: SchemaSet, findings: Findings, evaluator: Evaluator) -> None:
        self._definition = definition
        self._schemas = schemas
        self._findings = findings
        self._evaluator = evaluator
        self._rules_of_types = RuleVerification(schemas, findings, evaluator)
        self._scope: dict[str, Descriptor | None] = {}

    async def plan(self, name: str | None) -> Plan:
        """Verify and compile all of it. *name* has precedence over the definition's own.

        Raises:
            EvaluatorUnavailable: expressions could not be checked now.
        """
        definition = self._definition
        input_type = self._input_type()
        self._scope["input"] = input_type
        validates_input = definition.validate and await self.validates(input_type, "validate")
        steps = [planned for step in definition.steps if (planned := await self._step(step)) is not None]
        return Plan(
            name=name or definition.name,
            input_type=input_type.full_name if input_type is not None else "",
            budget_ms=definition.deadline_ms,
            steps=tuple(steps),
            output=await self._output(),
            schema_set=self._schemas,
            engine_level=definition.engine_level,
            run_deadline_ms=definition.run_deadline_ms or None,
            validates_input=validates_input,
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

    async def _step(self, step: StepDefinition) -> PlannedStep | None:
        fault = fault_in_step_name(step.name)
        if fault is None and step.name in self._scope:
            fault = f"the step name {step.name} is used twice"
        if fault is not None:
            self._fault(step, "workflow", fault, "name")
            return None
        gate = await self._gate(step)
        work, output_type = await self._work(step) if step.kind is None else await verify_kind(self, step, step.kind)
        self._scope[step.name] = output_type
        validates = step.validate and await self._validates_responses(step, work, output_type)
        if output_type is None or work is None:
            return None
        return PlannedStep(
            index=step.index,
            name=step.name,
            work=work,
            output_type=output_type.full_name,
            gate=gate,
            retry=step.retry,
            validates=validates,
        )

    async def _validates_responses(self, step: StepDefinition, work: Work | None, output: Descriptor | None) -> bool:
        """Whether what the step gives is validated: of one that fans out each response, and not their collection."""
        if isinstance(work, PlannedFanOut):
            output = self._schemas.message(work.response_type)
        return await self.validates(output, *step.path, "validate", step=step.name)

    async def validates(
        self, message: Descriptor | None, *path: str | int, kind: str = "workflow", step: str = ""
    ) -> bool:
        """Whether messages of that type can break rules: see `RuleVerification.validates`. None: it has a finding."""
        return message is not None and await self._rules_of_types.validates(message, *path, kind=kind, step=step)

    def _output_type(self, step: StepDefinition, method: MethodDescriptor | None) -> Descriptor | None:
        if step.fan_out is None:
            return method.output_type if method is not None else None
        try:
            return self._schemas.message(step.fan_out.collect_type)
        except InputInvalid:
            return None  # that is a finding of the fan-out

    async def _gate(self, step: StepDefinition) -> Expression | None:
        if not step.when:
            return None
        return await self.expression(step.when, *step.path, "when", results=BOOL, kind="when", step=step.name)

    async def _work(self, step: StepDefinition) -> tuple[Work | None, Descriptor | None]:
        """What the step does, and the type of the message that stands under its name from then on."""
        self._check_completion_and_target(step)
        method = self._method(step)
        work = await self._work_of(step, method) if method is not None else None
        return work, self._output_type(step, method)

    async def _work_of(self, step: StepDefinition, method: MethodDescriptor) -> Work | None:
        if step.edge is not None or step.fan_out is not None:
            edge = EdgeVerification(step, method, self._schemas, self._findings, self.composition, self.validates)
            return await edge.work(self._scope, lambda request, valid: self._call(step, method, request, valid))
        request = await self.composition(step.rules, step.cel_rules, method.input_type, step.path, step=step.name)
        if step.completion == EXTERNAL:
            return PlannedAnswer(method.input_type.full_name, request, step.patience)
        return self._call(step, method, request)

    def _call(
        self, step: StepDefinition, method: MethodDescriptor, request: Composition, validates_request: bool = False
    ) -> PlannedCall:
        return PlannedCall(
            target=handler_target(step.method) if step.target == HANDLER_TARGET else step.target,
            tls=step.tls,
            method_path="/" + step.method,
            deadline_ms=step.deadline_ms,
            input_type=method.input_type.full_name,
            request=request,
            validates_request=validates_request,
        )

    def message_type(self, full_name: str, *path: str | int, step: str = "") -> Descriptor | None:
        """The message type of that name; None when it has a finding, or *full_name* is empty since it had one."""
        if not full_name:
            return None
        try:
            return self._schemas.message(full_name)
        except InputInvalid as error:
            self._findings.add(f"{path[-1]}: {error}", *path, step=step)
            return None

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
            fault = f"{step.method} is a streaming method, and a step calls unary ones: add one that answers at once"
            self._fault(step, "method", fault, "method")
        return method

    async def composition(
        self,
        rules: Sequence[str],
        cel_rules: Sequence[CelRuleDefinition],
        target: Descriptor,
        path: Path,
        *,
        kinds: tuple[str, str] = ("rule", "celRule"),
        step: str = "",
        scope: ScopeTypes | None = None,
    ) -> Composition:
        """Compile the rules that build a message of type *target*; their faults become findings.

        *path* leads to the object that holds `rules` and `celRules`, *kinds* are those of their findings. Rules see
        *scope*, by default the input and every step so far.
        """
        scope = self._scope if scope is None else scope
        texts = self._rules(rules, target, (*path, "rules"), scope, kind=kinds[0], step=step)
        compiler = CelRules(target, scope, self._schemas, self._evaluator)
        compiled = []
        for rule in cel_rules:
            if self._findings.full:
                break
            faults, made = await compiler.compile(rule)
            for error, *inner in faults:
                self._findings.add(str(error), *rule.path, *inner, kind=kinds[1], step=step)
            if made is not None:
                compiled.append(made)
        return Composition(CompiledMapping.into(target, texts), tuple(compiled), self._schemas)

    async def expression(
        self, source: str, *path: str | int, results: frozenset[str], kind: str, step: str = ""
    ) -> Expression | None:
        """Compile an expression over the input and every step so far; None when it has a finding.

        *results* are the static types that it may have, as CEL writes them (`BOOL`, `STRING`, `TIMESTAMP`). What only
        the data tells passes as well, so whoever evaluates it looks at the value.
        """
        try:
            return await check_expression(source, self._scope, self._schemas, self._evaluator, results=results)
        except ExpressionRefused as error:
            self._findings.add(str(error), *path, kind=kind, step=step)
            return None

    def _rules(
        self, texts: Sequence[str], target: Descriptor, path: Path, scope: ScopeTypes, *, kind: str, step: str
    ) -> list[CompiledRule]:
        compiled = []
        for index, text in enumerate(texts):
            if self._findings.full:
                break
            try:
                compiled.append(compile_rule(text, target, scope, self._schemas))
            except RuleInvalid as error:
                fault = f"rule {text!r}: {error}" if text.strip() else str(error)
                self._findings.add(fault, *path, index, kind=kind, step=step)
        return compiled

    async def _output(self) -> PlannedOutput | None:
        output = self._definition.output
        if output is None or not output.type:
            return None
        try:
            descriptor = self._schemas.message(output.type)
        except InputInvalid as error:
            self._findings.add(f"type: {error}", "output", "type", kind="output")
            return None
        mapping = await self.composition(
            output.rules, output.cel_rules, descriptor, ("output",), kinds=("output", "output")
        )
        return PlannedOutput(descriptor.full_name, mapping)

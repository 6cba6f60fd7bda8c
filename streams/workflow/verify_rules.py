"""Verifying what is to be validated: the rules that its type declares must compile."""

from collections.abc import Sequence

from google.protobuf.descriptor import Descriptor

from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import BrokenRule, Evaluator
from streams.workflow.findings import Findings
from streams.workflow.ruled_types import RuledTypes


class RuleVerification:
    """Checks the rules of one schema, as far as a definition asks for them; those of each type once."""

    def __init__(self, schemas: SchemaSet, findings: Findings, evaluator: Evaluator) -> None:
        self._schemas = schemas
        self._findings = findings
        self._evaluator = evaluator
        self._types = RuledTypes(schemas)
        self._broken: dict[str, Sequence[BrokenRule]] = {}

    async def validates(self, message: Descriptor, *path: str | int, kind: str = "workflow", step: str = "") -> bool:
        """Whether messages of this type can break any rule at all, of their own or of what they hold.

        Rules that are broken become findings at *path*, which leads to the key that asks for the validation.

        Raises:
            EvaluatorUnavailable: rules could not be checked now.
        """
        ruled = self._types.below(message)
        for full_name in ruled:
            if self._findings.full:
                break
            if full_name not in self._broken:
                self._broken[full_name] = await self._evaluator.broken_rules(self._schemas, full_name)
            for broken in self._broken[full_name]:
                self._findings.add(f"a rule is broken: {broken}", *path, kind=kind, step=step)
        return bool(ruled)

"""What evaluators of people's expressions and rules have in common, and the one in this process, for trusted authors.

All speak to the same operations, and so give the same answers.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from google.protobuf.message import Message

from streams.evaluator.all_operations import operations_beside
from streams.evaluator.frames import Header
from streams.evaluator.operations import LoadedSchemas, Refused, perform
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import (
    NOT_MET,
    BrokenRule,
    Checked,
    ExpressionFailed,
    ExpressionRefused,
    NotMet,
    Plain,
    Rejection,
    RuleFailed,
    Violation,
)


class OperationsEvaluator(ABC):
    """An `Evaluator` (see streams.workflow.evaluation) over operations that run wherever `ask` has them run."""

    @abstractmethod
    async def ask(
        self, schemas: SchemaSet, request: Header, blobs: Sequence[bytes] = ()
    ) -> tuple[Header, Sequence[bytes]]:
        """Have an operation done over *schemas*.

        Raises:
            Refused: the operation says no, or took more time or memory than it is given; the text says which.
            EvaluatorUnavailable: this machine could not do it now.
        """

    @abstractmethod
    async def close(self) -> None:
        """End what was started. A call in flight ends with EvaluatorUnavailable."""

    async def check(self, schemas: SchemaSet, source: str, variables: Mapping[str, str]) -> Checked:
        request = {"operation": "cel.check", "source": source, "variables": dict(variables)}
        try:
            answer, _ = await self.ask(schemas, request)
        except Refused as error:
            raise ExpressionRefused(str(error)) from None
        return Checked(answer["type"], frozenset(answer["reads"]))

    async def evaluate(
        self, schemas: SchemaSet, source: str | None, variables: Mapping[str, Message], *, filter: str | None = None
    ) -> Plain | NotMet:
        names = sorted(variables)
        request: Header = {
            "operation": "cel.evaluate",
            "source": source,
            "filter": filter,
            "variables": {name: variables[name].DESCRIPTOR.full_name for name in names},
        }
        blobs = [variables[name].SerializePartialToString() for name in names]
        try:
            answer, _ = await self.ask(schemas, request, blobs)
        except Refused as error:
            raise ExpressionFailed(str(error)) from None
        value: Plain = answer.get("value")
        return value if answer["met"] else NOT_MET

    async def broken_rules(self, schemas: SchemaSet, full_name: str) -> Sequence[BrokenRule]:
        try:
            answer, _ = await self.ask(schemas, {"operation": "rules.check", "type": full_name})
        except Refused as error:
            return [BrokenRule(full_name, "", str(error))]
        return [BrokenRule(full_name, field, text) for field, text in answer["broken"]]

    async def rejections(
        self, schemas: SchemaSet, message: Message, *, items: Sequence[str] = ()
    ) -> Mapping[int | None, Rejection]:
        request = {"operation": "rules.reject", "type": message.DESCRIPTOR.full_name, "items": list(items)}
        try:
            answer, _ = await self.ask(schemas, request, [message.SerializePartialToString()])
        except Refused as error:
            raise RuleFailed(str(error)) from None
        return {
            index: Rejection(tuple(Violation(*violation) for violation in listed), count)
            for index, count, listed in answer["rejections"]
        }


class Digests:
    """The digest of each schema that is in use, computed once."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[SchemaSet, str] = WeakKeyDictionary()

    def of(self, schemas: SchemaSet) -> str:
        digest = self._known.get(schemas)
        if digest is None:
            digest = self._known[schemas] = hashlib.sha256(schemas.to_bytes()).hexdigest()
        return digest


class InProcessEvaluator(OperationsEvaluator):
    """Evaluates in this process: ten times as fast, and bounded by what an expression may say alone.

    An expression that is slow all the same stops the whole process while it runs. For trusted authors only.
    """

    def __init__(self) -> None:
        self._schemas = LoadedSchemas()
        self._digests = Digests()

    async def close(self) -> None:
        """Nothing was started."""

    async def ask(
        self, schemas: SchemaSet, request: Header, blobs: Sequence[bytes] = ()
    ) -> tuple[Header, Sequence[bytes]]:
        digest = self._digests.of(schemas)
        if not self._schemas.has(digest):
            self._schemas.load(digest, schemas.to_bytes())
        return perform(operations_beside(request["operation"]), self._schemas, {**request, "schema": digest}, blobs)

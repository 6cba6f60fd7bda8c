"""An evaluator that must not be used."""

from collections.abc import Mapping, Sequence

from google.protobuf.message import Message

from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import BrokenRule, Checked, NotMet, Plain, Rejection


class UnusedEvaluator:
    """Raises when anything is asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error or AssertionError("the evaluator was touched")

    async def check(self, schemas: SchemaSet, source: str, variables: Mapping[str, str]) -> Checked:
        raise self._error

    async def evaluate(
        self, schemas: SchemaSet, source: str | None, variables: Mapping[str, Message], *, filter: str | None = None
    ) -> Plain | NotMet:
        raise self._error

    async def broken_rules(self, schemas: SchemaSet, full_name: str) -> Sequence[BrokenRule]:
        raise self._error

    async def rejections(
        self, schemas: SchemaSet, message: Message, *, items: Sequence[str] = ()
    ) -> Mapping[int | None, Rejection]:
        raise self._error

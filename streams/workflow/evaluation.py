"""What the engine asks of the part that evaluates people's expressions (CEL) and rules, and what that answers.

Expressions come from people's definitions and rules from their schemas, and the engines of both can be neither
interrupted nor bounded from within. So the workflow engine never evaluates by itself: it is given an `Evaluator`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from google.protobuf.message import Message

from streams.workflow.descriptors import SchemaSet

Plain = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""A value of CEL as plain data, of exactly its type.

null, bool, int, double, string and list are None, bool, int, float, str and list. Every other type is an object with
one member that names it: `{"uint": 5}`, `{"bytes": "<base64>"}`, `{"timestamp": [seconds, nanos]}`,
`{"duration": [seconds, nanos]}`, `{"message": ["full.Name", "<base64>"]}`, `{"map": [[key, value], ...]}`.
"""

DYN: Final = "DYN"
"""The static type of what only the data tells; also the type of a variable that may hold anything."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression that compiles. `type` is its static type as CEL writes it: `BOOL`, `LIST<STRING>`, `acme.v1.Order`.

    `reads` are the variables it mentions.
    """

    type: str
    reads: frozenset[str]


class ExpressionRefused(ValueError):
    """An expression that cannot be used, whatever the data; the text says why. Becomes a finding."""


class ExpressionFailed(Exception):
    """An expression gave no value for this data, or none within its limits; the text says why. Fails its step."""


class NotMet(Enum):
    """What an evaluation gives when its filter is false."""

    NOT_MET = "not met"


NOT_MET: Final = NotMet.NOT_MET


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that a message breaks. `path` is empty where the rule is one of the whole message.

    It names fields as the .proto file does: `a.b[2]`, `m["k"]`, and `m["k"]#key` for a rule of the key itself.
    """

    path: str
    rule_id: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Rejection:
    """What a message breaks: the first of its violations, and how many there are in all."""

    violations: tuple[Violation, ...]
    count: int

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.violations))
        more = self.count - len(self.violations)
        return f"{listed}; and {more} more" if more else listed


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that cannot be used, whatever the data: of which type, and of which of its fields; empty: of itself."""

    type: str
    field: str
    error: str

    def __str__(self) -> str:
        return f"{self.type}.{self.field}: {self.error}" if self.field else f"{self.type}: {self.error}"


class RuleFailed(Exception):
    """A rule gave no answer for this data, or none within its limits; the text says why. Neither valid nor broken."""


class Evaluator(Protocol):
    """Evaluates expressions and rules over messages of one schema, within limits on time and memory."""

    async def check(self, schemas: SchemaSet, source: str, variables: Mapping[str, str]) -> Checked:
        """Compile an expression over *variables*, each a full message name or `DYN`.

        Raises:
            ExpressionRefused: it does not compile, or is over a limit that the text names.
            EvaluatorUnavailable: this machine could not do it now; nothing is known about the expression.
        """

    async def evaluate(
        self, schemas: SchemaSet, source: str | None, variables: Mapping[str, Message], *, filter: str | None = None
    ) -> Plain | NotMet:
        """The value of an expression that was checked over variables of these types.

        With *filter*, an expression too, `NOT_MET` when that is false; and without *source*, true when it is not.

        Raises:
            ExpressionFailed: it has no value for this data, took too long or too much memory, or *filter* is no bool.
            EvaluatorUnavailable: this machine could not do it now.
        """

    async def broken_rules(self, schemas: SchemaSet, full_name: str) -> Sequence[BrokenRule]:
        """The rules of one type, not of the types of its fields, that do not compile.

        Raises:
            EvaluatorUnavailable: this machine could not do it now; nothing is known about the rules.
        """

    async def rejections(
        self, schemas: SchemaSet, message: Message, *, items: Sequence[str] = ()
    ) -> Mapping[int | None, Rejection]:
        """What *message* breaks of the rules of its type and of all that it holds; empty when it keeps them.

        The whole message stands under None. With *items*, the path of one of its lists, what is broken in an element
        stands under the element's index, with paths from there.

        Raises:
            RuleFailed: a rule is broken or failed for this data, or took too much time or memory.
            EvaluatorUnavailable: this machine could not do it now.
        """

"""Every operation that an evaluator knows, in whatever process it runs."""

from importlib import import_module
from typing import Final

from streams.evaluator.operations import Operation

_FAMILIES: Final = {"cel": "streams.evaluator.cel_operations", "rules": "streams.evaluator.rule_operations"}


def operation_named(name: str) -> Operation:
    """The operation of that name. The engine behind a family of them is loaded with the first one, which takes time."""
    operation: Operation = import_module(_FAMILIES[name.partition(".")[0]]).OPERATIONS[name]
    return operation

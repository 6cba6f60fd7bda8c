"""Every operation that an evaluator knows, in whatever process it runs."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from streams.evaluator.operations import Operation

_FAMILIES: Final = {"cel": "streams.evaluator.cel_operations", "rules": "streams.evaluator.rule_operations"}


def operations_beside(name: str) -> Mapping[str, Operation]:
    """The operation of that name and its family. The engine behind them is loaded first, which takes time once."""
    operations: Mapping[str, Operation] = import_module(_FAMILIES[name.partition(".")[0]]).OPERATIONS
    return operations

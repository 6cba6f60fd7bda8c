"""Every operation that an evaluator knows, in whatever process it runs."""

from collections.abc import Mapping
from typing import Final

from streams.evaluator import cel_operations
from streams.evaluator.operations import Operation

OPERATIONS: Final[Mapping[str, Operation]] = {**cel_operations.OPERATIONS}

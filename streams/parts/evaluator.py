"""What evaluates people's expressions."""

from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator, OperationsEvaluator
from streams.settings import Settings


def build_evaluator(settings: Settings) -> OperationsEvaluator:
    """Build the evaluator that EVALUATOR names. It starts nothing before its first use, and must be closed."""
    return InProcessEvaluator() if settings.evaluator == "in_process" else ChildEvaluator()

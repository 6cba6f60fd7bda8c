"""Steps that handlers in Python serve: their targets, as plans have them and as findings refuse them."""

from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid
from streams.workflow.compiler import Compiled
from tests.workflow.samples import found, loan_with

Compile = Callable[[object], Compiled]


def local(**changes: Any) -> dict[str, Any]:
    return loan_with(lambda document: document["steps"][2].update(target="local", **changes))


def test_a_step_with_the_target_local_waits_for_a_worker_with_a_handler_of_its_method(compiled: Compile) -> None:
    plan = compiled(local(tls=False)).plan

    method = plan.steps[2].work.method_path.removeprefix("/")  # type: ignore[union-attr]
    assert plan.target_of(2) == f"local:{method}"


def test_tls_is_refused_where_nothing_leaves_the_process(compiled: Compile) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        compiled(local(tls=True))

    assert found(caught.value.findings) == [("notify", "workflow", "/steps/2/tls")]


def test_a_job_type_is_called_by_the_method_of_all_job_types_alone(compiled: Compile) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        compiled(loan_with(lambda document: document["steps"][2].update(target="job:reindex", tls=False)))

    assert found(caught.value.findings) == [("notify", "workflow", "/steps/2/method")]

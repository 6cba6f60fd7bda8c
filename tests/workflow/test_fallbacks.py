"""What of a CEL rule failed is named: its filter and its selector, and the fallback rule by itself."""

import pytest

from schemas.errors import MappingFailed
from streams.evaluator.protoc import ProtocChild
from tests.workflow.samples import RESPONSES, Service, loan_with, plan_of, segment


async def test_a_fallback_that_fails_is_named_with_its_rule(protoc: ProtocChild) -> None:
    rules = [
        {"target": "cents", "filter": "true", "fallback": ["applicant = input.applicant", "cents = input.applicant"]}
    ]
    plan = await plan_of(loan_with(lambda document: document["steps"][0].update(celRules=rules)), protoc)
    service = Service(plan.schema_set, RESPONSES)

    with pytest.raises(
        MappingFailed, match=r"^MAPPING: celRules\[0\] cents .*: fallback 'cents = input.applicant': \"ana\" is not an"
    ) as caught:
        await segment(plan, service)

    assert caught.value.step == "score"
    assert service.called == []


async def test_a_filter_that_fails_is_shown_beside_the_selector(protoc: ProtocChild) -> None:
    rules = [{"target": "applicant", "filter": "1 / (input.amount_cents - input.amount_cents) > 0", "selector": "'x'"}]
    plan = await plan_of(loan_with(lambda document: document["steps"][0].update(celRules=rules)), protoc)

    with pytest.raises(MappingFailed) as caught:
        await segment(plan, Service(plan.schema_set, RESPONSES))

    shown = "(filter '1 / (input.amount_cents - input.amount_cents) > 0')"
    assert str(caught.value) == f"MAPPING: celRules[0] applicant = \"'x'\" {shown}: filter: divide by zero"

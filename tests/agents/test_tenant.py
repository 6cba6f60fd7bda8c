"""Whose a record is: its topic says so, or a header of each record where the topic leaves it to one."""

from collections.abc import Sequence
from types import MappingProxyType
from uuid import uuid4

import pytest

from schemas.errors import ContractError
from schemas.topics import Format, Role, Topic
from streams.agents.prepare import NO_TENANT, tenant_of
from streams.kafka.records import Record
from tests.agents.bench import IntakeBench, request_value, until


def topic(*, tenant: str | None = None, header: str | None = None) -> Topic:
    return Topic(
        name="requests",
        role=Role.REQUESTS,
        formats=(Format.JSON,),
        subject="requests-value",
        partitions=1,
        replication=1,
        config=MappingProxyType({}),
        tenant=tenant,
        tenant_header=header,
    )


def record(*headers: tuple[str, bytes | None]) -> Record:
    return Record("requests", 0, 0, 0, None, b"{}", headers)


def test_a_fixed_tenant_is_no_matter_of_headers() -> None:
    assert tenant_of(record(("tenant-id", b"other")), topic(tenant="acme")) == "acme"


def test_a_header_names_the_tenant() -> None:
    headers = (("trace", b"1"), ("tenant-id", "müller".encode()), ("Tenant-Id", b"other"))
    assert tenant_of(record(*headers), topic(header="tenant-id")) == "müller"


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([], id="missing"),
        pytest.param([("tenant-id", None)], id="null"),
        pytest.param([("tenant-id", b"")], id="empty"),
        pytest.param([("tenant-id", b" acme")], id="blanks around it"),
        pytest.param([("tenant-id", b"a\x00b")], id="cannot be stored"),
        pytest.param([("tenant-id", b"\xff")], id="no UTF-8"),
        pytest.param([("tenant-id", b"a" * 201)], id="too long"),
        pytest.param([("tenant-id", b"acme"), ("tenant-id", b"other")], id="two that differ"),
        pytest.param([("tenant-id", b"acme"), ("tenant-id", b"acme")], id="twice"),
    ],
)
def test_a_header_that_names_no_tenant_is_refused(headers: Sequence[tuple[str, bytes | None]]) -> None:
    with pytest.raises(ContractError) as refused:
        tenant_of(record(*headers), topic(header="tenant-id"))
    assert refused.value.code == NO_TENANT == "tenant"


async def test_runs_belong_to_the_tenant_of_their_header_and_records_without_one_are_dead_letters(
    intake: IntakeBench,
) -> None:
    intake.tenant_header = "tenant-id"
    anna, ben, nobody = uuid4(), uuid4(), uuid4()
    intake.produce(request_value(anna), headers=[("tenant-id", b"anna")])
    intake.produce(request_value(nobody))
    intake.produce(request_value(ben), headers=[("tenant-id", b"ben")])
    intake.produce(request_value(anna), headers=[("tenant-id", b"ben")])
    async with intake.worker():
        await intake.has_committed(4)
        await until(lambda: intake.letters(), lambda: "no letter")
    owners = {row["job_id"]: row["tenant_id"] for row in await intake.rows("SELECT job_id, tenant_id FROM run")}
    assert owners == {anna: "anna", ben: "ben"}
    missing, foreign = await intake.letters()
    assert (missing["code"], missing["record_offset"]) == ("tenant", 1)
    assert (foreign["code"], foreign["record_offset"]) == ("conflict", 3)

"""From a record to the submission that it asks for: the same whether it was just read or held for a while."""

from typing import Final, Protocol

from schemas.errors import ContractError
from schemas.requests import Request, Unusable
from schemas.topics import DEFAULT_TENANT, Topic, is_tenant
from store.records import Submission
from streams.agents.decode import Registry, decode, trace_context
from streams.kafka.records import Record, time_of
from streams.verbs.submit import Origin

REFUSED_BY_STORE: Final = "refused-by-store"
"""Code of the dead letter of a record that Postgres cannot hold although our own checks passed it."""

NO_TENANT: Final = "tenant"
"""Code of the dead letter of a record whose topic leaves it to a header whose it is, and whose header does not say."""


class Submitter(Protocol):
    """Resolves a request; see `streams.verbs.submit`. Raises StoreUnavailable, and nothing for bad content."""

    async def prepare(self, request: Request | Unusable, origin: Origin) -> Submission: ...


async def prepare(record: Record, topic: Topic, registry: Registry, submitter: Submitter) -> Submission:
    """Return what *record* of *topic* asks for.

    Raises:
        UnknownSchema: the registry does not know its schema, at least not yet.
        ContractError: no run can be made of the record, ever; `code` and message say why.
        RegistryUnavailable: the registry must be asked, and does not answer: call again.
        StoreUnavailable: the store gave no answer: call again.
    """
    tenant_id = tenant_of(record, topic)
    request = await decode(record, topic.formats, registry)
    origin = Origin(
        tenant_id=tenant_id,
        trace_context=trace_context(record),
        record_time=time_of(record.timestamp_ms),
    )
    return await submitter.prepare(request, origin)


def tenant_of(record: Record, topic: Topic) -> str:
    """Return whose *record* is.

    Raises:
        ContractError: the topic leaves it to a header, and that names no tenant: nobody's run is made of the record.
    """
    if topic.tenant_header is None:
        return topic.tenant or DEFAULT_TENANT
    values = [value for name, value in record.headers if name == topic.tenant_header]
    match values:
        case []:
            raise ContractError(f"the header {topic.tenant_header} is missing", code=NO_TENANT)
        case [value]:
            return _tenant(value, topic.tenant_header)
        case _:
            raise ContractError(f"the header {topic.tenant_header} is there {len(values)} times", code=NO_TENANT)


def _tenant(value: bytes | None, header: str) -> str:
    try:
        tenant_id = "" if value is None else value.decode()
    except UnicodeDecodeError:
        tenant_id = ""
    if not is_tenant(tenant_id):
        raise ContractError(f"the header {header} names no tenant", code=NO_TENANT)
    return tenant_id

"""From a record to the submission that it asks for: the same whether it was just read or held for a while."""

from typing import Final, Protocol

from schemas.requests import Request, Unusable
from schemas.topics import DEFAULT_TENANT, Topic
from store.records import Submission
from streams.agents.decode import Registry, decode, record_time, trace_context
from streams.kafka.records import Record
from streams.verbs.submit import Origin

REFUSED_BY_STORE: Final = "refused-by-store"
"""Code of the dead letter of a record that Postgres cannot hold although our own checks passed it."""


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
    request = await decode(record, topic.formats, registry)
    origin = Origin(
        tenant_id=topic.tenant or DEFAULT_TENANT,
        trace_context=trace_context(record),
        record_time=record_time(record),
    )
    return await submitter.prepare(request, origin)

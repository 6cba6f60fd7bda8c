"""Which cluster and which topics these are: names are used again when topics are deleted and made anew, ids are not."""

import asyncio
import concurrent.futures
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from schemas.errors import BrokerUnavailable
from streams.kafka.security import KafkaSecurity

_ANSWER_SECONDS: Final = 10.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Identities:
    """The id of the cluster and of each topic asked for, as Kafka prints them."""

    cluster_id: str
    topic_ids: Mapping[str, str]


class TopicIdentities:
    """Asks the brokers for ids. Never cached: an answer is worth what it is worth at the time of the question."""

    def __init__(self, bootstrap: str, security: KafkaSecurity) -> None:
        # Silent: it would write about every failed connect, straight to standard error. The callers tell.
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **security.client_config()})

    async def of(self, topics: Collection[str]) -> Identities:
        """Return the ids as they are now.

        Raises:
            BrokerUnavailable: no answer, or a topic is not there (any more): ask again.
        """
        collection = TopicCollection(sorted(set(topics)))
        try:
            described = self._admin.describe_topics(collection, request_timeout=_ANSWER_SECONDS)
            cluster = self._admin.describe_cluster(request_timeout=_ANSWER_SECONDS)
            ids = {topic: _printed((await _answer(future)).topic_id) for topic, future in described.items()}
            return Identities(str((await _answer(cluster)).cluster_id), ids)
        except (KafkaException, TimeoutError) as error:
            raise BrokerUnavailable(f"the brokers do not say which topics these are: {error}") from error


def _printed(topic_id: object) -> str:
    """The client prints plain base64 where Kafka's tools print the alphabet that is safe in URLs."""
    return str(topic_id).translate(str.maketrans("+/", "-_"))


async def _answer(future: "concurrent.futures.Future[_Answer]") -> _Answer:
    return await asyncio.wait_for(asyncio.wrap_future(future), _ANSWER_SECONDS + 5)

"""Topics are made as `topics.yaml` says; nothing is ever taken away, and a second apply does nothing."""

from dataclasses import replace

import pytest

from schemas.errors import BrokerUnavailable, SettingsInvalid
from schemas.topics import Topics, load_topics
from streams.dev.ports import free_port
from streams.kafka.security import KafkaSecurity
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.topics import ChangeKind, Cluster, FoundTopic, Plan, findings, plan_for
from tests.fixtures.kafka import Kafka

DAY_MS = 86_400_000


def _topics(name: str = "", *, partitions: int = 2, config: str = "") -> Topics:
    return load_topics(f"""
{name}requests: {{role: requests, partitions: {partitions}, config: {{retention.ms: {DAY_MS}, {config}}}}}
{name}events: {{role: events, partitions: {partitions}, config: {{min.insync.replicas: 2}}}}
{name}answers: {{role: answers, partitions: 1}}
""")


def _as_wanted(topics: Topics, brokers: int = 3) -> Cluster:
    found = {
        topic.name: FoundTopic(topic.partitions, topic.replication_on(brokers), topic.config_on(brokers))
        for topic in topics.all()
    }
    return Cluster(brokers, found)


def _with(cluster: Cluster, name: str, **changes: object) -> Cluster:
    topic = replace(cluster.topics[name], **changes)  # type: ignore[arg-type]
    return replace(cluster, topics={**cluster.topics, name: topic})


def _config(cluster: Cluster, name: str, **config: str) -> Cluster:
    merged = {**cluster.topics[name].config, **{key.replace("_", "."): value for key, value in config.items()}}
    return _with(cluster, name, config=merged)


def _kinds(plan: Plan) -> list[tuple[str, ChangeKind]]:
    return [(change.topic, change.kind) for change in plan.changes]


def test_an_empty_cluster_gets_every_topic_with_copies_it_has_room_for() -> None:
    plan = plan_for(_topics(), Cluster(brokers=1, topics={}))

    assert _kinds(plan) == [
        (name, ChangeKind.CREATE) for name in ("requests", "events", "answers", "requests.dlq", "answers.dlq")
    ]
    assert {change.replication for change in plan.changes} == {1}
    assert plan.changes[1].config["min.insync.replicas"] == "1"
    assert str(plan.changes[0]) == (
        f"create requests: 2 partitions, 1 replicas, cleanup.policy=delete, retention.ms={DAY_MS}"
    )


def test_nothing_is_planned_for_what_is_as_wanted() -> None:
    topics = _topics()

    assert plan_for(topics, _as_wanted(topics)) == Plan((), ())


def test_partitions_are_added_only_when_told_and_never_removed() -> None:
    topics = _topics(partitions=4)
    fewer = _with(_as_wanted(topics), "events", partitions=3)
    more = _with(_as_wanted(topics), "events", partitions=5)

    assert plan_for(topics, fewer).changes == ()
    assert "later events of a run can be read before earlier ones" in plan_for(topics, fewer).withheld[0].problem
    assert _kinds(plan_for(topics, fewer, grow=True)) == [("events", ChangeKind.GROW)]
    assert plan_for(topics, fewer, grow=True).withheld == ()
    assert plan_for(topics, more, grow=True).changes == ()
    assert "none is removed" in plan_for(topics, more, grow=True).withheld[0].problem


@pytest.mark.parametrize(
    ("found", "applied"),
    [
        ({"retention_ms": str(DAY_MS // 2)}, True),
        ({"retention_ms": str(DAY_MS * 2)}, False),
        ({"retention_ms": "-1"}, False),
        ({"cleanup_policy": "compact"}, False),
    ],
)
def test_config_is_set_unless_that_could_drop_records(found: dict[str, str], applied: bool) -> None:
    topics = _topics()
    cluster = _config(_as_wanted(topics), "requests", **found)

    plan = plan_for(topics, cluster)

    assert _kinds(plan) == ([("requests", ChangeKind.SET_CONFIG)] if applied else [])
    assert [finding.topic for finding in plan.withheld] == ([] if applied else ["requests"])


def test_a_smaller_size_limit_is_withheld() -> None:
    topics = _topics(config="max.message.bytes: 1000")
    cluster = _config(_as_wanted(topics), "requests", max_message_bytes="2000")

    assert plan_for(topics, cluster).changes == ()


def test_a_cluster_as_wanted_has_no_findings() -> None:
    topics = _topics(config="min.insync.replicas: 2")
    cluster = _as_wanted(topics)
    cluster = _config(cluster, "answers", min_insync_replicas="2")
    cluster = _config(cluster, "answers.dlq", min_insync_replicas="2")

    assert findings(topics, cluster) == []


def test_what_is_not_safe_with_three_brokers_is_found() -> None:
    topics = _topics(config="min.insync.replicas: 2")
    cluster = _config(_as_wanted(topics), "events", unclean_leader_election_enable="true")
    cluster = _with(cluster, "requests", replication=2)

    problems = {str(finding) for finding in findings(topics, cluster)}

    assert any(problem.startswith("answers: min.insync.replicas must be 2") for problem in problems)
    assert any(problem.startswith("events: unclean.leader.election.enable must be false") for problem in problems)
    assert any(problem.startswith("requests: has 2 replicas, 3 are wanted") for problem in problems)


def test_dead_letters_that_would_not_fit_are_found() -> None:
    topics = _topics()
    cluster = _config(_as_wanted(topics, 1), "requests", max_message_bytes="5000000")

    assert [str(finding) for finding in findings(topics, cluster)] == [
        "requests.dlq: max.message.bytes is 1114124, under 5065536: requests's and 64 kB for headers"
    ]


async def test_a_second_apply_does_nothing(kafka: Kafka) -> None:
    topics = _topics(kafka.unique("apply") + ".")
    admin = TopicAdmin(kafka.bootstrap, KafkaSecurity())

    planned = await admin.plan(topics)
    applied = await admin.apply(topics)
    again = await admin.apply(topics)

    assert applied == planned
    assert len(applied.changes) == 5
    assert again == Plan((), ())
    assert await admin.check(topics) == []
    cluster = await admin.cluster(topics)
    assert cluster.topics[topics.requests.name].partitions == 2
    assert cluster.topics[topics.requests.name].config["retention.ms"] == str(DAY_MS)


async def test_a_plan_and_a_check_make_no_topic(kafka: Kafka) -> None:
    topics = _topics(kafka.unique("dry") + ".")
    admin = TopicAdmin(kafka.bootstrap, KafkaSecurity())

    await admin.plan(topics)
    problems = await admin.check(topics)

    assert [finding.problem for finding in problems] == ["`topics apply` would create it"] * 5
    assert (await admin.cluster(topics)).topics == {}


async def test_config_changes_reach_a_topic_that_is_there(kafka: Kafka) -> None:
    name = kafka.unique("config") + "."
    admin = TopicAdmin(kafka.bootstrap, KafkaSecurity())
    await admin.apply(_topics(name))
    longer = _topics(name, config="max.message.bytes: 2000000")

    applied = await admin.apply(longer)

    assert _kinds(applied) == [
        (f"{name}requests", ChangeKind.SET_CONFIG),
        (f"{name}requests.dlq", ChangeKind.SET_CONFIG),
    ]
    assert await admin.check(longer) == []


@pytest.mark.apache
async def test_growing_adds_partitions(kafka: Kafka) -> None:
    name = kafka.unique("grow") + "."
    admin = TopicAdmin(kafka.bootstrap, KafkaSecurity())
    await admin.apply(_topics(name))
    wider = _topics(name, partitions=3)

    assert (await admin.apply(wider)).changes == ()
    # The dead letters are made like their source, so they grow with it.
    assert _kinds(await admin.apply(wider, grow=True)) == [
        (f"{name}{topic}", ChangeKind.GROW) for topic in ("requests", "events", "requests.dlq")
    ]
    assert (await admin.plan(wider, grow=True)).changes == ()


@pytest.mark.apache
async def test_what_kafka_refuses_is_named_and_the_rest_is_done(kafka: Kafka) -> None:
    topics = _topics(kafka.unique("refused") + ".", config="no.such.setting: 1")
    admin = TopicAdmin(kafka.bootstrap, KafkaSecurity())

    with pytest.raises(SettingsInvalid) as refused:
        await admin.apply(topics)

    assert len(refused.value.problems) == 2
    assert all("no.such.setting" in problem for problem in refused.value.problems)
    assert len((await admin.cluster(topics)).topics) == 3


async def test_no_broker_is_an_outage() -> None:
    admin = TopicAdmin(f"127.0.0.1:{free_port()}", KafkaSecurity(), timeout_seconds=0.5)

    with pytest.raises(BrokerUnavailable):
        await admin.plan(_topics())

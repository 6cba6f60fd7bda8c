from pathlib import Path

import pytest
import yaml

import schemas
from schemas.errors import SettingsInvalid
from schemas.topics import BROKER_MAX_MESSAGE_BYTES, Format, Role, Topic, Topics, load_topics

OURS = Path(schemas.__file__).parent.parent / "topics.yaml"

SMALLEST = """
requests: {role: requests, partitions: 4, tenant: acme}
events: {role: events, partitions: 6}
answers: {role: answers, partitions: 1, replication: 1, config: {max.message.bytes: 2000, retention.ms: 5, a: true}}
"""


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(SettingsInvalid) as refused:
        load_topics(text)
    return refused.value.problems


def changed(old: str, new: str) -> str:
    assert old in SMALLEST
    return SMALLEST.replace(old, new, 1)


def test_our_own_file_describes_every_topic() -> None:
    topics = load_topics(OURS)
    assert topics == load_topics(OURS.read_text())
    assert {topic.name: (topic.role, topic.partitions, topic.subject) for topic in topics.all()} == {
        "workflow-run-requests": (Role.REQUESTS, 6, "workflow-run-requests-value"),
        "workflow-run-requests.dlq": (Role.DEAD_LETTERS, 1, None),
        "workflow-run-events": (Role.EVENTS, 6, "workflow-run-events-value"),
        "workflow-step-completions": (Role.ANSWERS, 6, "workflow-step-completions-value"),
        "workflow-step-completions.dlq": (Role.DEAD_LETTERS, 1, None),
    }
    for topic in topics.all():
        assert topic.config["unclean.leader.election.enable"] == "false"
        assert topic.config_on(3)["min.insync.replicas"] == "2"
        assert topic.config["cleanup.policy"] == "delete"


def test_every_key_that_our_own_file_explains_is_a_key_and_the_reverse() -> None:
    document = yaml.safe_load(OURS.read_text())
    used = {key for entry in document.values() for key in entry}
    explained = {line[4:].split()[0] for line in OURS.read_text().splitlines() if line[:4] == "#   " and line[4] != " "}
    assert explained == used


def test_what_is_left_out_has_its_default() -> None:
    topics = load_topics(SMALLEST)
    assert topics.requests == Topic(
        name="requests",
        role=Role.REQUESTS,
        formats=(Format.PROTOBUF, Format.JSON),
        subject="requests-value",
        partitions=4,
        replication=3,
        config={"cleanup.policy": "delete"},
        tenant="acme",
    )
    assert topics.events.formats == (Format.PROTOBUF,)
    assert topics.events.tenant is None
    assert topics.answers.tenant == "default"


def test_a_dead_letter_topic_is_made_like_its_source_with_room_for_the_headers() -> None:
    topics = load_topics(SMALLEST)
    letters = topics.dead_letters_of("answers")
    assert (letters.name, letters.role, letters.partitions, letters.replication) == (
        "answers.dlq",
        Role.DEAD_LETTERS,
        1,
        1,
    )
    assert letters.config == {
        "cleanup.policy": "delete",
        "retention.ms": "5",
        "a": "true",
        "max.message.bytes": str(2000 + 65536),
    }
    assert topics.dead_letters_of("requests").max_message_bytes == BROKER_MAX_MESSAGE_BYTES + 65536


def test_only_topics_that_are_read_have_dead_letters() -> None:
    topics = load_topics(SMALLEST)
    assert set(topics.dead_letters) == {"requests", "answers"}
    with pytest.raises(KeyError):
        topics.dead_letters_of("events")


def test_the_entry_of_a_dead_letter_topic_rules_over_its_source() -> None:
    text = SMALLEST + "requests.dlq: {role: dead-letters, partitions: 2, config: {retention.ms: 9}}"
    letters = load_topics(text).dead_letters_of("requests")
    assert (letters.partitions, letters.replication, letters.config["retention.ms"]) == (2, 3, "9")


def test_a_cluster_with_fewer_brokers_gets_fewer_copies_and_can_lose_one() -> None:
    topic = load_topics(changed("partitions: 6", "partitions: 6, config: {min.insync.replicas: 2}")).events
    assert [topic.replication_on(brokers) for brokers in (1, 2, 3, 5)] == [1, 2, 3, 3]
    assert [topic.config_on(brokers)["min.insync.replicas"] for brokers in (1, 2, 3, 5)] == ["1", "1", "2", "2"]


def test_topics_are_listed_once_each() -> None:
    topics = load_topics(SMALLEST)
    assert [topic.name for topic in topics.all()] == ["requests", "events", "answers", "requests.dlq", "answers.dlq"]
    assert isinstance(topics, Topics)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (changed("partitions: 4", "partitions: 0"), "requests.partitions: is 0, not a whole number from 1 to 10000"),
        (changed("partitions: 4", "partitions: true"), "requests.partitions: is a boolean"),
        (changed("partitions: 4", "partitions: '4'"), "requests.partitions: is a text"),
        (changed("partitions: 4,", ""), "requests.partitions: is missing"),
        (changed("partitions: 4", "partitions: 4, replication: 0"), "requests.replication: is 0"),
        (changed("partitions: 4", "partitions: 4, key: order_no"), "requests.key: is order_no"),
        (changed("tenant: acme", "tenant: [a]"), "requests.tenant: is not a text of 1 to 200 characters"),
        (changed("tenant: acme", "tenant: ''"), "requests.tenant: is not a text"),
        (changed("tenant: acme", "tenant: ' a'"), "requests.tenant: is not a text of 1 to 200 characters with"),
        (changed("tenant: acme", "tenant: {header: ''}"), "requests.tenant: from a header is written {header: name}"),
        (changed("tenant: acme", "tenant: {header: x, else: a}"), "requests.tenant: from a header is written"),
        (changed("tenant: acme", "tennant: acme"), "requests.tennant: is not a key here; there are role, key"),
        (changed("partitions: 6", "partitions: 6, tenant: a"), "events.tenant: is not a key here"),
        (changed("partitions: 6", "partitions: 6, dead_letters: a"), "events.dead_letters: is not a key here"),
        (changed("partitions: 6", "partitions: 6, value: {format: json}"), "events.value.format: is 'json'"),
        (changed("partitions: 4", "partitions: 4, value: {format: [avro]}"), "requests.value.format: is ['avro']"),
        (changed("partitions: 4", "partitions: 4, value: {format: []}"), "requests.value.format: is []"),
        (changed("partitions: 4", "partitions: 4, value: {subjct: a}"), "requests.value.subjct: is not a key here"),
        (changed("partitions: 4", "partitions: 4, value: {subject: 5}"), "requests.value.subject: is a whole number"),
        (changed("partitions: 4", "partitions: 4, value: x"), "requests.value: is a text, not a mapping"),
        (changed("a: true", "a: 1.5"), "answers.config.a: is a number, not a text"),
        (changed("a: true", "a: [1]"), "answers.config.a: is a list"),
        (changed("a: true", "5: 1"), "answers.config: the key 5 is not a text"),
        (changed("a: true", "cleanup.policy: compact"), "answers.config.cleanup.policy: must be delete"),
        (changed("max.message.bytes: 2000", "max.message.bytes: big"), "answers.config.max.message.bytes: is big"),
        (changed("a: true", "min.insync.replicas: 0"), "answers.config.min.insync.replicas: is 0"),
        (changed("role: requests", "role: request"), "requests.role: is request; there are requests, events"),
        (changed("role: requests,", ""), "requests.role: is missing"),
        (changed("role: requests", "role: events"), "role requests: exactly one topic must have it; here it is none"),
        (changed("role: requests", "role: events"), "role events: exactly one topic must have it; here it is requests"),
        (SMALLEST + "x: {role: state}", "x.role: state topics are not served by this version"),
        (SMALLEST + "x: {role: binding, workflow: y}", "x.role: binding topics are not served by this version"),
        (SMALLEST + "x: {role: dead-letters}", "x.role: no topic that is read names this one as its dead_letters"),
        (SMALLEST + "x: 5", "x: is a whole number, not a mapping"),
        (SMALLEST + "5: {role: events}", "5: a topic's name is a text; put it in quotes"),
        (SMALLEST + "'a b': {role: dead-letters}", "a b: a topic's name is 1 to 249"),
        (SMALLEST + "'..': {role: dead-letters}", "..: a topic's name is 1 to 249"),
        (SMALLEST + "x" * 250 + ": {role: dead-letters}", ": a topic's name is 1 to 249"),
        (
            changed("tenant: acme", "dead_letters: events"),
            "requests.dead_letters: events cannot be a dead-letter topic",
        ),
        (changed("tenant: acme", "dead_letters: a/b"), "requests.dead_letters: a/b cannot be a dead-letter topic"),
        (changed("tenant: acme", "dead_letters: answers.dlq"), "requests.dead_letters: answers.dlq is another topic's"),
        (changed("tenant: acme", "dead_letters: answers_dlq"), "Kafka takes no topic of this name beside answers_dlq"),
        (
            SMALLEST + "answers.dlq: {role: dead-letters, config: {max.message.bytes: 2000}}",
            "answers.dlq.config.max.message.bytes: is under 67536",
        ),
        (SMALLEST + "answers.dlq: {role: dead-letters, tenant: a}", "answers.dlq.tenant: is not a key here"),
        (SMALLEST + "events: {role: events}", "the key 'events' stands twice"),
        (changed("partitions: 6", "partitions: 6, partitions: 6"), "the key 'partitions' stands twice"),
        (SMALLEST + "[", "not YAML"),
        (SMALLEST + "x: !!python/object/apply:os.getcwd []", "not YAML: could not determine a constructor"),
        (SMALLEST + "? [a]\n: 1", "not YAML"),
        ("[" * 100_000, "not YAML: nested too deep"),
        ("\0", "not YAML"),
        ("", "the file is not a mapping"),
        ("- a", "the file is not a mapping"),
    ],
)
def test_a_fault_is_told_with_where_it_stands(text: str, problem: str) -> None:
    assert any(problem in told for told in problems_of(text)), problems_of(text)


def test_every_fault_is_told_at_once() -> None:
    text = SMALLEST.replace("partitions", "partition")
    assert [told for told in problems_of(text) if "partition: is not a key here" in told] != []
    assert len([told for told in problems_of(text) if "partitions: is missing" in told]) == 3


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    for name in ("missing.yaml", "latin.yaml"):
        with pytest.raises(SettingsInvalid, match=name):
            load_topics(tmp_path / name)

"""What tells a record from every other one."""

from itertools import combinations

from streams.kafka.records import Record, content_hash


def test_absent_and_empty_and_moved_bytes_differ() -> None:
    contents = [
        (None, None),
        (b"", None),
        (None, b""),
        (b"", b""),
        (b"ab", b"c"),
        (b"a", b"bc"),
        (b"abc", b""),
        (b"abc", None),
    ]
    for one, other in combinations(contents, 2):
        assert content_hash(*one) != content_hash(*other), (one, other)


def test_an_identity_names_cluster_topic_place_time_and_content() -> None:
    record = Record("t", 3, 17, 1_700_000_000_123, b"k", b"v", ())
    identity = record.identity("cluster", "topic-id")
    assert (identity.cluster_id, identity.topic_id, identity.topic) == ("cluster", "topic-id", "t")
    assert (identity.partition, identity.offset, identity.timestamp_ms) == (3, 17, 1_700_000_000_123)
    assert identity.content_hash == content_hash(b"k", b"v")
    assert len(identity.content_hash) == 32


def test_the_size_counts_key_value_and_headers() -> None:
    assert Record("t", 0, 0, 0, b"k" * 10, b"v" * 100, (("h" * 3, b"x" * 7), ("n", None))).size == 121
    assert Record("t", 0, 0, 0, None, None, ()).size == 0

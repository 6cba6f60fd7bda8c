"""intake: what an operator sees of the positions, and moves."""

from pathlib import Path

import pytest

from streams.cli.exits import Exit
from tests.agents.bench import IntakeBench, request_value
from tests.cli.conftest import Run


@pytest.fixture
def on_intake(on_store: Run, monkeypatch: pytest.MonkeyPatch, intake: IntakeBench, tmp_path: Path) -> Run:
    """Commands on the request topic of the test."""
    file = tmp_path / "topics.yaml"
    names = {"requests": intake.topic, "events": f"{intake.topic}-events", "answers": f"{intake.topic}-answers"}
    file.write_text("".join(f"{name}: {{role: {role}, partitions: 1}}\n" for role, name in names.items()))
    monkeypatch.setenv("WORKFLOW_RUNS_TOPICS_FILE", str(file))
    monkeypatch.setenv("WORKFLOW_RUNS_KAFKA_BOOTSTRAP", intake.kafka.bootstrap)
    monkeypatch.setenv("WORKFLOW_RUNS_GROUP", intake.group)
    monkeypatch.setenv("WORKFLOW_RUNS_WORKER_ID", "anna")
    return on_store


def test_a_partition_is_shown_skipped_and_sought(on_intake: Run, intake: IntakeBench) -> None:
    intake.produce(*[request_value() for _ in range(9)])
    [fresh] = on_intake("intake", "status", "--json").json["partitions"]
    assert (fresh["position"], fresh["committed"], fresh["logEnd"], fresh["lag"]) == (None, None, 9, 9)
    assert fresh["oldestUnread"] is not None

    skipped = on_intake("intake", "skip", intake.topic, "0", "--to", "4", "--reason", "a flood", "--json")
    assert (skipped.code, skipped.json["before"], skipped.json["after"]) == (0, None, 4)
    refused = on_intake("intake", "seek", intake.topic, "0", "beginning")
    assert (refused.code, "--undo-skip" in refused.err) == (Exit.USAGE, True)
    sought = on_intake("intake", "seek", intake.topic, "0", "beginning", "--undo-skip", "--reason", "it was none")
    assert (sought.code, "is read from 0 on" in sought.out) == (0, True)

    [line] = on_intake("intake", "status", "--json").json["partitions"]
    assert (line["position"], line["floor"], line["lag"], line["topicId"]) == (0, 0, 9, line["positionTopicId"])
    printed = on_intake("intake", "status").out
    assert intake.topic in printed
    assert "logEnd" in printed


def test_the_exit_code_says_why_a_position_was_not_moved(on_intake: Run, intake: IntakeBench) -> None:
    assert on_intake("intake", "seek", "other", "0", "0").code == Exit.UNKNOWN_ID
    assert on_intake("intake", "seek", intake.topic, "0", "0").code == Exit.UNKNOWN_ID
    assert on_intake("intake", "seek", intake.topic, "0", "-1").code == Exit.USAGE
    assert on_intake("intake", "seek", intake.topic, "0", "soon").code == Exit.USAGE
    assert on_intake("intake", "skip", intake.topic, "0", "--to", "1").code == Exit.USAGE
    beyond = on_intake("intake", "skip", intake.topic, "0", "--to", "1", "--reason", "x")
    assert (beyond.code, "--to 0" in beyond.err) == (Exit.USAGE, True)


def test_a_broker_or_store_that_is_away_exits_3(on_intake: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/nowhere")
    assert on_intake("intake", "status").code == Exit.UNAVAILABLE

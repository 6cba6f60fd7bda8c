"""The console script: what it prints, and what its exit code says."""

import json
import uuid
from pathlib import Path

import pytest

from streams.cli.exits import MEANING, Exit
from streams.cli.main import cli
from streams.dev.registry.server import RegistryServer
from tests.cli.conftest import Run
from tests.driver.stories import embed_text
from tests.fixtures.kafka import Kafka


@pytest.fixture
def workflow(tmp_path: Path) -> str:
    file = tmp_path / "embed text.json"
    file.write_text(json.dumps(embed_text()))
    return str(file)


def test_help_teaches_every_command_and_every_exit_code(run: Run) -> None:
    printed = run("--help")
    assert printed.code == 0
    for name in cli.list_commands(None):  # type: ignore[arg-type]  # the group needs no context to name its commands
        assert name in printed.out
        assert run(name, "--help").code == 0
    for code in Exit:
        assert f"{int(code)}  {MEANING[code]}" in printed.out


def test_a_run_is_submitted_listed_shown_and_cancelled(on_store: Run, workflow: str) -> None:
    job_id = str(uuid.uuid4())
    assert on_store("put-workflow", workflow).code == 0
    assert "embed-text" in on_store("list-workflows").out

    options = ("--job-id", job_id, "--business-key", "order-7", "--label", "region=north")
    submitted = on_store("submit-workflow", "--name", "embed-text", "--input", '{"text": "a"}', *options, "--json")
    assert (submitted.code, submitted.json["created"]) == (0, True)
    listed = on_store("list-jobs", "--business-key", "order-7", "--json")
    assert [job["jobId"] for job in listed.json["jobs"]] == [job_id]
    assert job_id in on_store("list-jobs").out
    shown = on_store("get-job", job_id)
    assert "order-7" in shown.out
    assert ("tokenize" in shown.out, "syntax = " in shown.out) == (True, False)
    whole = on_store("get-job", job_id, "--json").json["job"]
    assert whole["labels"] == {"region": "north"}
    assert "syntax = " in str(whole["workflowDefinition"]["schema"])
    assert on_store("cancel-job", job_id, "--reason", "enough").code == 0
    assert on_store("cancel-job", job_id, "--reason", "enough").code == Exit.REFUSED


def test_the_input_and_the_definition_may_come_from_files(on_store: Run, workflow: str, tmp_path: Path) -> None:
    given = tmp_path / "input.json"
    given.write_text('{"text": "a"}')
    assert on_store("submit-workflow", "--file", workflow, "--input", f"@{given}").code == 0


def test_the_exit_code_says_what_became_of_a_call(on_store: Run, workflow: str) -> None:
    job_id = str(uuid.uuid4())
    on_store("put-workflow", workflow)
    submit = ("submit-workflow", "--name", "embed-text", "--job-id", job_id, "--input")
    assert on_store(*submit, '{"text": "a"}').code == Exit.DONE
    assert on_store(*submit, '{"text": "a"}').code == Exit.DONE
    conflict = on_store(*submit, '{"text": "b"}')
    assert (conflict.code, "another request" in conflict.err) == (Exit.CONFLICT, True)
    assert on_store(*submit, '{"text": }').code == Exit.USAGE
    assert on_store("submit-workflow", "--name", "embed-text", "--input", '{"txt": 1}').code == Exit.REFUSED
    assert on_store("submit-workflow", "--name", "nobody-s", "--input", "{}").code == Exit.UNKNOWN_ID
    assert on_store("get-job", str(uuid.uuid4())).code == Exit.UNKNOWN_ID
    assert on_store("get-job", "17").code == Exit.USAGE
    assert on_store("get-job").code == Exit.USAGE
    assert on_store("list-jobs", "--limit", "-1").code == Exit.USAGE
    assert on_store("submit-workflow", "--input", "{}").code == Exit.USAGE
    assert on_store("nonsense").code == Exit.USAGE


def test_every_finding_of_a_broken_definition_is_printed(on_store: Run, tmp_path: Path) -> None:
    step = {**embed_text()["steps"][0], "rules": ["text = nowhere.text", "nothing = input.text"]}
    file = tmp_path / "broken.json"
    file.write_text(json.dumps(embed_text(steps=[step])))
    printed = on_store("put-workflow", str(file))
    assert printed.code == Exit.REFUSED
    assert "nowhere" in printed.err
    assert "nothing" in printed.err


def test_a_store_or_worker_that_is_away_exits_3_and_a_missing_setting_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    unset = run("list-jobs")
    assert (unset.code, "WORKFLOW_RUNS_DATABASE_URL" in unset.err) == (Exit.UNAVAILABLE, True)
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/nowhere")
    assert run("list-jobs").code == Exit.UNAVAILABLE
    assert run("list-jobs", "--url", "http://127.0.0.1:9").code == Exit.UNAVAILABLE
    monkeypatch.setenv("WORKFLOW_RUNS_IN_FLIGHT", "many")
    assert run("list-jobs").code == Exit.USAGE


def test_migrate_says_what_it_would_do_and_does_it_once(
    run: Run, monkeypatch: pytest.MonkeyPatch, blank_database_url: str
) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", blank_database_url)
    assert "would apply 0001_store" in run("migrate", "--plan").out
    assert "applied 0001_store" in run("migrate").out
    assert "up to date" in run("migrate").out


def test_topics_are_planned_applied_and_then_as_they_should_be(
    run: Run, monkeypatch: pytest.MonkeyPatch, kafka: Kafka, tmp_path: Path
) -> None:
    names = {role: kafka.unique(role) for role in ("requests", "events", "answers")}
    file = tmp_path / "topics.yaml"
    file.write_text(
        "".join(f"{name}: {{role: {role}, partitions: 2, replication: 3}}\n" for role, name in names.items())
    )
    monkeypatch.setenv("WORKFLOW_RUNS_TOPICS_FILE", str(file))
    monkeypatch.setenv("WORKFLOW_RUNS_KAFKA_BOOTSTRAP", kafka.bootstrap)

    planned = run("topics", "apply", "--dry-run")
    assert (planned.code, f"would create {names['requests']}" in planned.out) == (0, True)
    missing = run("topics", "check")
    assert (missing.code, names["events"] in missing.err) == (Exit.REFUSED, True)
    applied = run("topics", "apply")
    assert (applied.code, f"create {names['events']}" in applied.out) == (0, True)
    assert run("topics", "apply", "--json").json == {"applied": True, "changes": [], "withheld": []}
    assert run("topics", "check").code == 0


def test_schemas_are_registered_once_and_checked(
    run: Run, monkeypatch: pytest.MonkeyPatch, registry: RegistryServer, tmp_path: Path
) -> None:
    subject = f"{uuid.uuid4()}-value"
    file = tmp_path / "topics.yaml"
    value = f"value: {{format: [protobuf], subject: {subject}}}"
    file.write_text(
        "".join(f"{role}: {{role: {role}, partitions: 1, {value}}}\n" for role in ("requests", "events", "answers"))
    )
    monkeypatch.setenv("WORKFLOW_RUNS_TOPICS_FILE", str(file))
    monkeypatch.setenv("WORKFLOW_RUNS_SCHEMA_REGISTRY_URL", registry.url)

    missing = run("schemas", "check")
    assert (missing.code, "workflow-runs schemas register" in missing.err) == (Exit.REFUSED, True)
    registered = run("schemas", "register", "--json").json
    assert list(registered) == [subject]
    assert run("schemas", "register", "--json").json == registered
    assert run("schemas", "check", "--json").json == registered
    monkeypatch.setenv("WORKFLOW_RUNS_SCHEMA_REGISTRY_URL", "http://127.0.0.1:9")
    assert run("schemas", "check").code == Exit.UNAVAILABLE

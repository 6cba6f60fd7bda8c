"""Settings: one sentence for each thing that is wrong, before anything starts."""

from pathlib import Path

import pytest

from schemas.errors import SettingsInvalid
from streams.settings import Role, is_loopback, load_settings, split_address, table


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("WORKFLOW_RUNS_"):
            monkeypatch.delenv(name)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("in_flight: 7\nlease_seconds: 20\nroles: [runs]\n")
    monkeypatch.setenv("WORKFLOW_RUNS_FILE", str(file))
    monkeypatch.setenv("WORKFLOW_RUNS_LEASE_SECONDS", "30")

    settings = load_settings()

    assert (settings.in_flight, settings.lease_seconds, settings.max_attempts) == (7, 30, 3)
    assert settings.roles == {Role.RUNS}


def test_every_broken_setting_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_IN_FLIGHT", "many")
    monkeypatch.setenv("WORKFLOW_RUNS_MAX_ATTEMPTS", "0")
    monkeypatch.setenv("WORKFLOW_RUNS_ROLES", "intake,cooking")

    with pytest.raises(SettingsInvalid) as caught:
        load_settings()

    told = " ".join(caught.value.problems)
    assert "WORKFLOW_RUNS_IN_FLIGHT" in told
    assert "WORKFLOW_RUNS_MAX_ATTEMPTS" in told
    assert "'intake', 'runs', 'relay' or 'web'" in told


def test_an_unknown_name_stops_the_start_and_names_the_nearest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_DATABSE_URL", "postgresql://somewhere")
    with pytest.raises(SettingsInvalid, match="did you mean WORKFLOW_RUNS_DATABASE_URL"):
        load_settings()

    monkeypatch.delenv("WORKFLOW_RUNS_DATABSE_URL")
    file = tmp_path / "settings.yaml"
    file.write_text("lease_second: 20\n")
    monkeypatch.setenv("WORKFLOW_RUNS_FILE", str(file))
    with pytest.raises(SettingsInvalid, match="did you mean lease_seconds"):
        load_settings()


def test_a_file_that_is_missing_or_is_no_yaml_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_FILE", str(tmp_path / "nowhere.yaml"))
    with pytest.raises(SettingsInvalid, match="there is no file"):
        load_settings()

    file = tmp_path / "settings.yaml"
    file.write_text("{[")
    monkeypatch.setenv("WORKFLOW_RUNS_FILE", str(file))
    with pytest.raises(SettingsInvalid, match="WORKFLOW_RUNS_FILE"):
        load_settings()


def test_the_verbs_listen_on_loopback_only() -> None:
    with pytest.raises(SettingsInvalid, match="not loopback"):
        load_settings(http_bind="0.0.0.0:8080")
    assert load_settings(http_bind="[::1]:0").http_bind == "[::1]:0"
    assert load_settings(http_bind="").http_bind == ""


def test_a_blank_worker_id_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match="must not be blank"):
        load_settings(worker_id="  ")


def test_each_role_names_the_settings_it_lacks() -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(database_url="postgresql://somewhere").require_for_roles()
    assert [sentence.split(" ")[0] for sentence in caught.value.problems] == [
        "WORKFLOW_RUNS_KAFKA_BOOTSTRAP",
        "WORKFLOW_RUNS_SCHEMA_REGISTRY_URL",
    ]
    load_settings(roles="web").require_for_roles()


def test_an_id_stays_taken_for_longer_than_its_run_is_there() -> None:
    with pytest.raises(SettingsInvalid, match="REMEMBER_SECONDS must be above PRUNE_AFTER_SECONDS"):
        load_settings(prune_after_seconds=100, remember_seconds=100)
    assert load_settings(prune_after_seconds=100, remember_seconds=101).remember_seconds == 101


def test_sasl_needs_its_mechanism_and_credentials() -> None:
    with pytest.raises(SettingsInvalid, match="KAFKA_SASL_MECHANISM"):
        load_settings(kafka_security_protocol="SASL_SSL")


def test_a_password_is_not_shown_when_settings_are_printed() -> None:
    settings = load_settings(
        kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_username="ana",
        kafka_sasl_password="secret-of-ana",
        database_url="postgresql://ana:secret-of-ana@somewhere/runs",
    )
    assert "secret-of-ana" not in repr(settings)


@pytest.mark.parametrize("address", ["", "8080", ":8080", "host:", "host:http", "host:70000", "host:-1"])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        split_address(address)


def test_loopback_is_this_machine_alone() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "example.org", "127.0.0.1.example.org")))


def test_the_documented_table_is_the_one_in_the_code() -> None:
    documented = Path(__file__).parents[2].joinpath("docs/settings.md").read_text("utf-8")
    for name, default, meaning in table():
        assert f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |" in documented
    assert documented.count("| `WORKFLOW_RUNS_") == len(table())

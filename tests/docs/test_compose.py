"""docker-compose.yml and the Dockerfile against the code: names, addresses and versions. Nothing of them is run."""

import re
import tomllib
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from schemas.topics import load_topics
from streams.settings import PREFIX, Settings, load_settings, split_address
from tests.docs.markdown import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
WORKERS = [name for name in SERVICES if name.startswith("worker-")]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
OF_OURS = ["setup", *WORKERS]


def settings_of(service: str) -> Settings:
    """The settings of a service of ours, as the process in it would read them."""
    given = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in SERVICES[service]["environment"].items()
        if name.startswith(PREFIX)
    }
    return load_settings(**given)


def listener_of(service: str) -> tuple[str, int]:
    """Host and port under which other services reach it by its health check or advertisement."""
    environment, check = SERVICES[service]["environment"], " ".join(SERVICES[service]["healthcheck"]["test"])
    match service:
        case "kafka":
            [(name, port)] = re.findall(r"PLAINTEXT://(\w+):(\d+)", environment["KAFKA_ADVERTISED_LISTENERS"])
            assert f"{name}:{port}" in check
            assert f"PLAINTEXT://:{port}" in environment["KAFKA_LISTENERS"]
        case _:
            raise AssertionError(service)
    return name, int(port)


@pytest.mark.parametrize("service", OF_OURS)
def test_every_setting_is_one_and_is_accepted(service: str) -> None:
    environment = SERVICES[service]["environment"]
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    assert {name for name in environment if name.startswith("WORKFLOW_RUNS")} == set(environment)
    assert set(environment) <= known
    settings_of(service).require_for_roles()


def test_there_are_two_workers_and_each_has_a_name_of_its_own() -> None:
    assert len(WORKERS) == 2
    assert {settings_of(worker).worker_id for worker in WORKERS} == set(WORKERS)


@pytest.mark.parametrize("service", OF_OURS)
def test_every_address_is_where_the_service_listens(service: str) -> None:
    settings = settings_of(service)
    assert split_address(settings.kafka_bootstrap or "") == listener_of("kafka")
    database = urlsplit(settings.database_url or "")
    postgres = SERVICES["postgres"]["environment"]
    assert (database.hostname, database.port, database.path) == ("postgres", 5432, f"/{postgres['POSTGRES_DB']}")
    assert (database.username, database.password) == (postgres["POSTGRES_USER"], postgres["POSTGRES_PASSWORD"])
    registry = urlsplit(settings.schema_registry_url or "")
    check = " ".join(SERVICES["registry"]["healthcheck"]["test"])
    assert registry.hostname == "registry"
    assert f"http://localhost:{registry.port}{registry.path}/subjects" in check


def test_postgres_is_healthy_only_when_others_can_connect() -> None:
    postgres = SERVICES["postgres"]
    # By its socket the server of the image's own set-up would answer too.
    user = postgres["environment"]["POSTGRES_USER"]
    assert postgres["healthcheck"]["test"] == ["CMD", "pg_isready", "-h", "127.0.0.1", "-U", user]


def test_each_worker_is_asked_where_its_health_is() -> None:
    for worker in WORKERS:
        host, port = split_address(settings_of(worker).health_bind)
        assert f"http://{host}:{port}/readyz" in " ".join(SERVICES[worker]["healthcheck"]["test"])


def test_a_worker_has_more_time_to_stop_than_it_takes() -> None:
    for worker in WORKERS:
        grace = int(re.fullmatch(r"(\d+)s", SERVICES[worker]["stop_grace_period"])[1])  # type: ignore[index]
        assert grace >= settings_of(worker).drain_grace_seconds + 10


def test_what_a_service_waits_for_is_there_and_can_tell_how_it_is() -> None:
    for service in SERVICES.values():
        for name, wanted in service.get("depends_on", {}).items():
            assert name in SERVICES
            if wanted["condition"] == "service_healthy":
                assert "test" in SERVICES[name]["healthcheck"]
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert "healthcheck" not in SERVICES[name]


def test_the_commands_are_commands_of_ours_in_the_order_that_they_need() -> None:
    commands = SERVICES["setup"]["command"][-1].split(" && ")
    assert commands == ["workflow-runs migrate", "workflow-runs topics apply", "workflow-runs schemas register"]
    for worker in WORKERS:
        assert SERVICES[worker]["command"] == ["workflow-runs", "worker"]
        assert "setup" in SERVICES[worker]["depends_on"]
    assert re.search(r'^CMD \["workflow-runs", "worker"\]$', DOCKERFILE, re.MULTILINE)


def test_the_image_has_what_the_settings_name() -> None:
    [folder] = re.findall(r"^WORKDIR (\S+)$", DOCKERFILE, re.MULTILINE)
    copied = [word for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]]
    for name in copied:
        assert (ROOT / name).exists(), name
    for service in OF_OURS:
        topics = settings_of(service).topics_file
        assert topics.parent == Path(folder)
        assert topics.name in copied
        load_topics(ROOT / topics.name)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = [name.rstrip("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]]
    assert set(packages) | {"pyproject.toml", project["project"]["readme"]} <= set(copied)


def test_python_is_one_that_the_package_takes() -> None:
    [minor] = re.findall(r"^FROM python:3\.(\d+)-slim$", DOCKERFILE, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11"
    assert int(minor) >= 11


def test_kafka_is_the_version_that_the_tests_run_on() -> None:
    pom = ElementTree.parse(ROOT / "streams/dev/kafka/pom.xml")
    version = pom.findtext(".//{*}kafka.version")
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version}"
    # Topics are described in topics.yaml, and nowhere else.
    assert SERVICES["kafka"]["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"

"""Targets: names from a file that may change, literal addresses by pattern."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import SettingsInvalid
from streams.calls.targets import Target, Targets, read_targets


class Clock:
    """A monotonic clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "targets.yaml"


@pytest.fixture
def targets(file: Path, clock: Clock) -> Callable[[str], Targets]:
    def build(text: str) -> Targets:
        file.write_text(text)
        return Targets(file, default_permits=8, clock=clock)

    return build


def test_a_name_has_the_address_and_the_limits_of_the_file(targets: Callable[[str], Targets]) -> None:
    known = targets(
        'tokenizer: {address: "10.0.0.7:9000", permits: 3}\nmailer: {address: "mail.test:443", tls: true}\n'
    )

    assert known.find("tokenizer") == Target("tokenizer", "10.0.0.7:9000", tls=False, permits=3)
    assert known.find("mailer") == Target("mailer", "mail.test:443", tls=True, permits=8)


def test_a_name_that_the_file_does_not_have_is_not_served(targets: Callable[[str], Targets]) -> None:
    assert not targets("").serves("tokenizer")


def test_a_service_that_moved_is_found_a_second_later(
    targets: Callable[[str], Targets], file: Path, clock: Clock
) -> None:
    known = targets('tokenizer: {address: "10.0.0.7:9000"}')

    file.write_text('tokenizer: {address: "10.0.0.8:9000"}')
    clock.now += 0.9
    assert known.find("tokenizer") == Target("tokenizer", "10.0.0.7:9000", tls=False, permits=8)
    clock.now += 0.1
    assert known.find("tokenizer") == Target("tokenizer", "10.0.0.8:9000", tls=False, permits=8)


@pytest.mark.parametrize("broken", ["tokenizer: [", "tokenizer: {address: nowhere}", None])
def test_a_change_that_cannot_be_used_changes_nothing_and_is_logged_once(
    targets: Callable[[str], Targets], file: Path, clock: Clock, caplog: pytest.LogCaptureFixture, broken: str | None
) -> None:
    known = targets('tokenizer: {address: "10.0.0.7:9000"}')

    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.now += 2
            assert known.serves("tokenizer")

    assert [str(file) in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("a: {}", "target a needs an address host:port, not None"),
        ("a: {address: 'host'}", "not 'host'"),
        ("a: {address: 'http://host:80'}", "not 'http://host:80'"),
        ("a: {address: 'host:0'}", "not 'host:0'"),
        ("a: {address: 'host:70000'}", "not 'host:70000'"),
        ("a: 'host:80'", "target a needs a mapping with its address"),
        ("a: {address: 'host:80', permits: 0}", "permits is a number from 1"),
        ("a: {address: 'host:80', permits: true}", "permits is a number from 1"),
        ("a: {address: 'host:80', tls: 'yes please'}", "tls is true or false"),
        ("a: {address: 'host:80', token: 'x'}", "unknown key 'token'; known are address, ca_file"),
        ("'a:1': {address: 'host:80'}", "'a:1' cannot be the name of a target"),
        ("local: {address: 'host:80'}", "'local' cannot be the name of a target"),
        ("a: {address: 'host:80'}\na: {address: 'host:81'}", "the key 'a' occurs twice"),
        ("a: {address: 'host:80', tls: yes}", "yes means different things"),
        ("a: {address: 'host:80', call_seconds: 0}", "call_seconds is a number from 0.001 to 86,400"),
        ("a: {address: 'host:80', message_bytes: 1.5}", "message_bytes is a number from 1024"),
        ("a: {address: 'host:80', tls: true, cert_file: a.pem}", "cert_file and key_file go together"),
        ("a: {address: 'host:80', token_file: token}", "token_file needs tls: true"),
        ("a: {address: 'host:80', ca_file: ca.pem}", "ca_file needs tls: true"),
        ("a: {address: 'host:80', tls: true, server_name: 5}", "server_name must be text"),
        ("a: {address: 'host:80', tls: true, token_file: nowhere}", "cannot be read: No such file"),
        ("- a", "is not a mapping"),
        ("a: [", "cannot be read"),
    ],
)
def test_what_cannot_be_used_stops_the_start_with_a_sentence(file: Path, entry: str, fault: str) -> None:
    file.write_text(entry)

    with pytest.raises(SettingsInvalid) as refused:
        Targets(file)

    assert fault in str(refused.value)


def test_every_fault_of_a_file_is_told_at_once(file: Path) -> None:
    file.write_text("a: {address: host}\nb: {address: 'host:1', permits: -1}\n")

    with pytest.raises(SettingsInvalid) as refused:
        read_targets(file, 8)

    assert len(refused.value.problems) == 2


@pytest.mark.parametrize("literal", ["127.0.0.1:9000", "localhost:1", "LOCALHOST:1", "[::1]:65535"])
def test_literal_addresses_of_this_machine_are_served(literal: str) -> None:
    assert Targets(default_permits=4).find(literal) == Target(literal, literal, tls=False, permits=4)


@pytest.mark.parametrize(
    "literal",
    ["10.0.0.7:9000", "127.0.0.1.evil.test:80", "127.0.0.1:0", "127.0.0.1:99999", "dns:///127.0.0.1:80", "localhost"],
)
def test_other_literal_addresses_are_not(literal: str) -> None:
    assert not Targets().serves(literal)


def test_patterns_allow_literal_addresses_as_a_whole() -> None:
    known = Targets(allowed=["*.internal.test:9000", "mail:*"])

    assert [known.serves(literal) for literal in ("a.internal.test:9000", "mail:25")] == [True, True]
    assert [known.serves(literal) for literal in ("a.internal.test:9001", "xmail:25", "127.0.0.1:9")] == [False] * 3


def test_a_pattern_without_a_port_stops_the_start() -> None:
    with pytest.raises(SettingsInvalid, match="'internal' is not a host:port pattern"):
        Targets(allowed=["internal"])

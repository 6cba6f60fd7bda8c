"""The drawing at the top of `schemas/errors.py` against the classes below it."""

import inspect
import re
from dataclasses import dataclass

from schemas import errors
from schemas.errors import CallFailed, WorkerError

LINE = re.compile(
    r"(?P<indent>(?:[│ ] {3})*)(?:[├└]── )?(?P<name>\w+) +(?P<retryable>yes|no|by code|by cause) +(?P<http>\d{3})\b"
)


@dataclass(frozen=True)
class Drawn:
    name: str
    parent: str
    retryable: str
    http_status: int


def drawing() -> list[Drawn]:
    path = [WorkerError.__name__]
    drawn: list[Drawn] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := LINE.match(line):
            depth = len(match["indent"]) // 4 + 1
            path = [*path[:depth], match["name"]]
            drawn.append(Drawn(match["name"], path[-2], match["retryable"], int(match["http"])))
    return drawn


def classes() -> dict[str, type[WorkerError]]:
    found = inspect.getmembers(errors, lambda member: inspect.isclass(member) and issubclass(member, WorkerError))
    return {name: kind for name, kind in found if kind is not WorkerError}


def test_every_error_is_drawn_once_and_nothing_else_is() -> None:
    names = [drawn.name for drawn in drawing()]
    assert sorted(names) == sorted(classes())


def test_every_error_is_drawn_under_its_parent_with_its_decision() -> None:
    by_name = classes()
    for drawn in drawing():
        kind = by_name[drawn.name]
        assert kind.__bases__ == (getattr(errors, drawn.parent),), drawn
        assert kind.http_status == drawn.http_status, drawn
        if drawn.retryable in ("yes", "no"):
            assert kind.retryable is (drawn.retryable == "yes"), drawn


def test_only_a_failed_call_decides_by_its_code() -> None:
    assert [drawn.name for drawn in drawing() if drawn.retryable == "by code"] == ["CallFailed"]
    assert CallFailed("UNAVAILABLE", "").retryable
    assert not CallFailed("INVALID_ARGUMENT", "").retryable

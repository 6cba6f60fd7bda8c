"""The demo's ledger finds whatever is not exact."""

from dataclasses import replace
from typing import Any

import pytest

from streams.dev.demo.ledger import EVENTS_OF_A_RUN, Call, Evidence, balance


def events_of(job_id: str) -> list[dict[str, Any]]:
    told = []
    for seq, text in enumerate(EVENTS_OF_A_RUN, start=1):
        kind, _, step = text.partition(" ")
        told.append({"key": job_id, "job_id": job_id, "seq": seq, "type": kind, "step": step, "duplicate": False})
    return told


@pytest.fixture
def exact() -> Evidence:
    jobs = {"a": "order-01", "b": "order-02"}
    return Evidence(
        names=jobs,
        rows={job: {"status": "COMPLETED"} for job in jobs},
        events=[event for job in jobs for event in events_of(job)],
        calls=[Call(job, step, 1, "OK") for job in jobs for step in ("tokenize", "embed")],
        taken_over=frozenset({"b"}),
        produced={0: 1, 1: 1},
        committed={0: 1, 1: 1},
    )


def test_an_exact_story_has_no_problems(exact: Evidence) -> None:
    assert balance(exact).problems == []


def test_a_call_repeated_for_a_reason_is_explained(exact: Evidence) -> None:
    retried = replace(exact, calls=[*exact.calls, Call("a", "embed", 1, "UNAVAILABLE"), Call("b", "tokenize", 1, "OK")])
    ledger = balance(retried)
    assert ledger.problems == []
    assert [line.strip() for line in ledger.lines if "calls, since" in line] == [
        "order-01 embed: 2 calls, since 1 answered UNAVAILABLE and was retried",
        "order-02 tokenize: 2 calls, since the worker was killed in the middle of it",
    ]


def test_every_disagreement_is_a_problem(exact: Evidence) -> None:
    duplicate = {**exact.events[-1], "duplicate": True}
    broken: dict[str, Evidence] = {
        "its row is missing": replace(exact, rows={"a": {"status": "COMPLETED"}}),
        "its row is FAILED": replace(exact, rows={**exact.rows, "b": {"status": "FAILED"}}),
        "nobody asked for": replace(exact, rows={**exact.rows, "c": {"status": "COMPLETED"}}),
        "its events were": replace(exact, events=exact.events[:-1]),
        "are numbered": replace(exact, events=[*exact.events[:-1], {**exact.events[-1], "seq": 7}]),
        "has the key": replace(exact, events=[*exact.events[:-1], {**exact.events[-1], "key": "x"}]),
        "was called 2 times without a reason": replace(exact, calls=[*exact.calls, Call("a", "embed", 1, "OK")]),
        "was never called": replace(exact, calls=exact.calls[:-1]),
        "is committed": replace(exact, committed={0: 1}),
    }
    for told, evidence in broken.items():
        assert any(told in problem for problem in balance(evidence).problems), told
    assert balance(replace(exact, events=[*exact.events, duplicate])).problems == []

"""The ledger at the end of the story: what was asked, stored, told, called and committed, and whether it all agrees."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

EVENTS_OF_A_RUN: Final = (
    "ACCEPTED",
    "STEP_CHECKPOINT tokenize",
    "STEP_CHECKPOINT embed",
    "WAITING review",
    "STEP_CHECKPOINT review",
    "COMPLETED",
)
CALLED_STEPS: Final = ("tokenize", "embed")


@dataclass(frozen=True)
class Call:
    """One call that a service received."""

    job_id: str
    step: str
    attempt: int
    outcome: str


@dataclass(frozen=True)
class Evidence:
    """What was gathered from outside: the producer's acknowledgements, rows, events, calls and the group's offsets."""

    names: Mapping[str, str]
    """Job id to the name the story calls it by; one entry per request."""
    rows: Mapping[str, Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    calls: Sequence[Call]
    taken_over: frozenset[str]
    """Jobs that the killed worker held when it was killed."""
    produced: Mapping[int, int]
    """Partition to the offset after the last acknowledged request."""
    committed: Mapping[int, int]


@dataclass
class Ledger:
    """`lines` tell what was found; `problems` are what disagrees, and are empty when the ledger is exact."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def balance(evidence: Evidence) -> Ledger:
    """Compare everything with everything."""
    ledger = Ledger()
    _rows(evidence, ledger)
    _events(evidence, ledger)
    _calls(evidence, ledger)
    _offsets(evidence, ledger)
    return ledger


def _rows(evidence: Evidence, ledger: Ledger) -> None:
    statuses = Counter(str(row["status"]) for row in evidence.rows.values())
    told = ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))
    ledger.lines.append(f"requests {len(evidence.names)}, rows {len(evidence.rows)}: {told}")
    for job_id, name in evidence.names.items():
        status = evidence.rows[job_id]["status"] if job_id in evidence.rows else "missing"
        if status != "COMPLETED":
            ledger.problems.append(f"{name}: its row is {status}")
    for job_id in evidence.rows.keys() - evidence.names.keys():
        ledger.problems.append(f"{job_id}: a row that nobody asked for")


def _events(evidence: Evidence, ledger: Ledger) -> None:
    by_job: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    repeated = 0
    for event in evidence.events:
        repeated += bool(event["duplicate"])
        if not event["duplicate"]:
            by_job[event["job_id"]].append(event)
        if event["key"] != event["job_id"]:
            ledger.problems.append(f"event {event['seq']} of {event['job_id']} has the key {event['key']}")
    for job_id, name in evidence.names.items():
        told = [f"{event['type']} {event['step']}".strip() for event in by_job[job_id]]
        if told != list(EVENTS_OF_A_RUN):
            ledger.problems.append(f"{name}: its events were {', '.join(told)}")
        numbers = [event["seq"] for event in by_job[job_id]]
        if numbers != list(range(1, len(numbers) + 1)):
            ledger.problems.append(f"{name}: its events are numbered {numbers}")
    total = sum(map(len, by_job.values()))
    ledger.lines.append(
        f"events {total}: {len(EVENTS_OF_A_RUN)} for each run, in order, without a gap; {repeated} redelivered"
    )


def _calls(evidence: Evidence, ledger: Ledger) -> None:
    calls: defaultdict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in evidence.calls:
        calls[call.job_id, call.step].append(call)
    once = sum(1 for made in calls.values() if len(made) == 1)
    ledger.lines.append(f"steps called once {once}, more than once {len(calls) - once}:")
    for job_id, name in evidence.names.items():
        for step in CALLED_STEPS:
            made = calls[job_id, step]
            if not made:
                ledger.problems.append(f"{name}: {step} was never called")
            ledger.lines.extend(_repeats(name, step, made, job_id in evidence.taken_over, ledger))


def _repeats(name: str, step: str, made: Sequence[Call], taken_over: bool, ledger: Ledger) -> Iterator[str]:
    refused = [call for call in made if call.outcome != "OK"]
    unexplained = len(made) - 1 - len(refused)
    if refused:
        yield f"  {name} {step}: {len(made)} calls, since {len(refused)} answered {refused[0].outcome} and was retried"
    if unexplained == 1 and taken_over:
        yield f"  {name} {step}: {len(made)} calls, since the worker was killed in the middle of it"
    elif unexplained > 0:
        ledger.problems.append(f"{name}: {step} was called {len(made)} times without a reason")


def _offsets(evidence: Evidence, ledger: Ledger) -> None:
    wanted, stored = sum(evidence.produced.values()), sum(evidence.committed.values())
    ledger.lines.append(f"offsets committed {stored} of {wanted}")
    for partition, end in sorted(evidence.produced.items()):
        if evidence.committed.get(partition, 0) != end:
            ledger.problems.append(
                f"partition {partition}: offset {evidence.committed.get(partition, 0)} is committed, {end} was produced"
            )

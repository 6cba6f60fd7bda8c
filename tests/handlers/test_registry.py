"""What a worker serves: found in the modules that it is told, and refused before anything starts."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from schemas.errors import SettingsInvalid
from streams.handlers.registry import load_registry

Write = Callable[..., str]
_HEAD = "from streams.handlers import Context, handler, job\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module and return its name; every one is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)

    def write(name: str, text: str) -> str:
        file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(_HEAD + dedent(text))
        return name

    yield write
    for name in set(sys.modules) - known:
        if name.startswith("handlers_"):
            del sys.modules[name]


def problems(*modules: str) -> tuple[str, ...]:
    with pytest.raises(SettingsInvalid) as caught:
        load_registry(modules)
    return caught.value.problems


def test_without_modules_nothing_is_served() -> None:
    registry = load_registry(())

    assert len(registry) == 0
    assert registry.find("local:a.A/B") is None


def test_a_function_stays_as_it_was_and_is_found_by_its_target(write: Write) -> None:
    write(
        "handlers_one",
        """
        @handler("a.v1.A/B", timeout_seconds=5, permits=2)
        def served(request, context): return 7
        @job("reindex", process="child")
        async def reindex(data, context): ...
        """,
    )

    registry = load_registry(["handlers_one"])

    found = registry.find("local:a.v1.A/B")
    assert found is not None
    assert found.declaration.function(None, None) == 7
    assert (found.declaration.timeout_seconds, found.declaration.permits) == (5, 2)
    assert registry.job_types == ["reindex"]
    assert registry.find("job:reindex") is not None


def test_a_module_brings_what_it_imports_by_name_and_what_is_below_it(write: Write) -> None:
    write("handlers_else", '@handler("a.A/Else")\ndef other(request, context): ...\ndef unused(): ...')
    write("handlers_package.below", '@handler("a.A/Below")\ndef below(request, context): ...')
    write("handlers_package.__init__", "from handlers_else import other\nfrom . import below")

    registry = load_registry(["handlers_package", "handlers_else"])

    assert {one.declaration.name for one in registry} == {"a.A/Else", "a.A/Below"}


def test_two_workers_of_one_process_find_the_same(write: Write) -> None:
    write("handlers_one", '@handler("a.A/B")\ndef served(request, context): ...')

    assert len(load_registry(["handlers_one"])) == len(load_registry(["handlers_one"])) == 1


def test_two_handlers_of_one_method_are_refused_with_both_places(write: Write, tmp_path: Path) -> None:
    write("handlers_one", '@handler("a.A/B")\ndef served(request, context): ...')
    write("handlers_two", 'x = 1\n@handler("a.A/B")\ndef served(request, context): ...')

    assert problems("handlers_one", "handlers_two") == (
        f"HANDLERS: a.A/B is served twice, at {tmp_path}/handlers_one.py:2 and at {tmp_path}/handlers_two.py:3",
    )


def test_a_handler_that_a_later_one_of_the_same_name_hides_is_refused_as_well(write: Write) -> None:
    write("handlers_one", '@job("a")\ndef one(data, context): ...\n@job("a")\ndef one(data, context): ...')

    [problem] = problems("handlers_one")
    assert problem.startswith("HANDLERS: a is served twice, at ")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("raise ValueError('on import')", "cannot be imported: ValueError: on import"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("def f(:", "cannot be imported: SyntaxError: "),
        ("x = 1", "declares no handler"),
        (
            "@handler('no method')\ndef f(request, context): ...",
            "'no method' is no method: write package.Service/Method",
        ),
        ("@job('a b')\ndef f(data, context): ...", "'a b' is no job type"),
        ("@job('a')\ndef f(data): ...", "f must take two arguments, the request and the context"),
        ("@job('a')\ndef f(data, context): yield 1", "f yields: what serves a must return its result"),
        ("@job('a')\nclass F: ...", "what serves a must be a function, not type"),
        ("@job('a', process='thread')\ndef f(data, context): ...", "process is 'thread'"),
        ("@job('a', process='child', transactional=True)\ndef f(data, context): ...", "cannot be transactional"),
        ("@job('a', timeout_seconds=0)\ndef f(data, context): ...", "timeout_seconds of a is 0"),
        ("@job('a', permits=0)\ndef f(data, context): ...", "permits of a is 0"),
        ("@handler('a.A/B')\ndef f(request: dict, context): ...", "takes dict: annotate the request with a message"),
        (
            "@handler('a.A/B')\ndef f(request: 'Unknown', context): ...",
            "the annotations of the handler of a.A/B cannot",
        ),
    ],
)
def test_a_module_that_cannot_be_used_stops_the_start_with_a_sentence(write: Write, text: str, problem: str) -> None:
    write("handlers_one", text)

    [told] = problems("handlers_one")

    assert told.startswith("HANDLERS: ")
    assert problem in told


def test_what_people_import_needs_neither_kafka_nor_postgres() -> None:
    program = "import sys, streams.handlers; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()

    assert "streams.handlers" in found
    assert not {name.split(".")[0] for name in found} & {"psycopg", "grpc", "faust", "aiokafka", "aiohttp", "pydantic"}

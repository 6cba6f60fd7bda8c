"""Frames, turns and the schemas that are kept: the parts of an evaluator by themselves."""

import asyncio
import subprocess
import sys

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from streams.evaluator import frames
from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator
from streams.evaluator.operations import LoadedSchemas, Refused, SchemaUnknown, perform
from streams.evaluator.turns import Turns
from streams.parts.evaluator import build_evaluator
from streams.settings import load_settings

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(header=st.dictionaries(st.text().filter(lambda key: key != "blobs"), PLAIN), blobs=st.lists(st.binary()))
def test_a_frame_gives_back_what_was_put_into_it(header: frames.Header, blobs: list[bytes]) -> None:
    frame = frames.encode(header, blobs)

    assert frames.body_length(frame[:4]) == len(frame) - 4
    assert frames.decode(frame[4:]) == (header, blobs)


@given(st.binary())
def test_what_is_no_frame_is_told_as_such(data: bytes) -> None:
    whole = frames.encode({"a": 1}, [b"xyz"])[4:]
    for body in (data, whole + data + b"!", whole[: -1 - len(data) % len(whole)], data + whole):
        try:
            frames.decode(body)
        except frames.FrameInvalid:
            continue
        assert body == whole or frames.encode(*frames.decode(body))


def test_a_frame_has_a_limit() -> None:
    with pytest.raises(frames.FrameInvalid, match="over the limit"):
        frames.encode({}, [bytes(frames.MAX_FRAME_BYTES)])
    for length in (0, 3, frames.MAX_FRAME_BYTES + 1):
        with pytest.raises(frames.FrameInvalid):
            frames.body_length(frames.LENGTH.pack(length))


async def test_turns_go_from_key_to_key_and_in_order_within_one() -> None:
    turns = Turns(1)
    await turns.take("a")
    taken: list[str] = []

    async def take(name: str) -> None:
        await turns.take(name[0])
        taken.append(name)
        turns.give_back()

    waiting = [asyncio.create_task(take(name)) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
    await asyncio.sleep(0)
    waiting[1].cancel()
    turns.give_back()
    await asyncio.gather(*waiting, return_exceptions=True)

    assert taken == ["a1", "b1", "c1", "a3", "b2"]


async def test_a_turn_of_someone_who_gave_up_just_then_is_passed_on() -> None:
    turns = Turns(1)
    await turns.take("a")
    gives_up, waits = (asyncio.create_task(turns.take(key)) for key in "ab")
    await asyncio.sleep(0)
    turns.give_back()
    gives_up.cancel()

    await asyncio.wait_for(waits, 1)
    assert gives_up.cancelled() or (await asyncio.gather(gives_up, return_exceptions=True))
    turns.give_back()
    await asyncio.wait_for(turns.take("c"), 1)


def test_schemas_are_kept_within_bounds_the_newest_last_to_go() -> None:
    def descriptor_set(name: str, padding: int = 0) -> bytes:
        files = FileDescriptorSet()
        files.file.add(name=f"{name}.proto", syntax="proto3", package=f"p.{'x' * padding}")
        return files.SerializeToString()

    by_number = LoadedSchemas(most=2)
    for name in ("a", "b"):
        by_number.load(name, descriptor_set(name))
    by_number.get("a")
    by_number.load("c", descriptor_set("c"))
    assert [by_number.has(name) for name in "abc"] == [True, False, True]
    with pytest.raises(SchemaUnknown):
        by_number.get("b")

    by_bytes = LoadedSchemas(most_bytes=200)
    for name in "abc":
        by_bytes.load(name, descriptor_set(name, 100))
    assert [by_bytes.has(name) for name in "abc"] == [False, False, True]
    by_bytes.load("d", descriptor_set("d", 1_000))
    assert [by_bytes.has(name) for name in "cd"] == [False, True]


def test_whatever_an_operation_raises_is_its_own_no() -> None:
    schemas = LoadedSchemas()
    schemas.load("s", b"")

    def performed(error: BaseException) -> None:
        def operation(*_: object) -> tuple[frames.Header, list[bytes]]:
            raise error

        perform({"x": operation}, schemas, {"operation": "x", "schema": "s"}, [])

    with pytest.raises(Refused, match="unexpected KeyError") as caught:
        performed(KeyError("k"))
    assert not caught.value.worn
    with pytest.raises(Refused, match="more memory") as caught:
        performed(MemoryError())
    assert caught.value.worn
    with pytest.raises(Refused, match="unexpected KeyError"):
        perform({}, schemas, {"operation": "none", "schema": "s"}, [])


def test_nothing_of_the_engine_is_loaded_before_an_expression_is() -> None:
    program = "import sys, streams.parts.store, streams.evaluator.evaluators; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "streams.evaluator.child_evaluator" in loaded
    assert "cel_expr_python" not in loaded
    assert "protovalidate" not in loaded


@pytest.mark.parametrize(("value", "kind"), [("child", ChildEvaluator), ("in_process", InProcessEvaluator)])
def test_the_setting_decides_where_expressions_are_evaluated(value: str, kind: type) -> None:
    assert isinstance(build_evaluator(load_settings(evaluator=value)), kind)
    assert isinstance(build_evaluator(load_settings()), ChildEvaluator)

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import RFC_4122, UUID

import pytest

from schemas.errors import ContractError
from schemas.ids import Uuid7Source, key_of, parse_job_id, uuid7

ID = "3f0c7c1e-6a55-4f0e-9d7d-0d5a4c1b2a01"


def ticking(*times: int) -> Callable[[], int]:
    left: Iterator[int] = iter(times)
    return lambda: next(left)


def zeros(count: int) -> bytes:
    return bytes(count)


def ones(count: int) -> bytes:
    return b"\xff" * count


def test_an_id_has_the_version_the_variant_and_the_time_of_rfc_9562() -> None:
    made = Uuid7Source(clock_ms=lambda: 0x0123456789AB, entropy=ones)()
    assert made.version == 7
    assert made.variant == RFC_4122
    assert made.int >> 80 == 0x0123456789AB


def test_ids_of_one_process_ascend() -> None:
    made = [uuid7() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_ascend_within_a_millisecond_and_when_the_clock_is_set_back() -> None:
    source = Uuid7Source(clock_ms=ticking(1000, 1000, 900, 1000, 1001), entropy=zeros)
    made = [source() for _ in range(5)]
    assert made == sorted(set(made))
    assert [each.int >> 80 for each in made] == [1000, 1000, 1000, 1000, 1001]


def test_a_counter_that_overflows_moves_on_to_the_next_millisecond() -> None:
    source = Uuid7Source(clock_ms=lambda: 1000, entropy=zeros)
    source()
    source._counter = (1 << 42) - 1
    last = UUID(int=1000 << 80 | 7 << 76 | 0xFFF << 64 | 2 << 62 | ((1 << 62) - 1))
    following = source()
    assert following > last
    assert following.int >> 80 == 1001
    assert following.version == 7


def test_ids_from_many_threads_are_distinct() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: uuid7(), range(4000)))
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("text", [ID, ID.upper(), "ffffffff-ffff-ffff-ffff-ffffffffffff"])
def test_a_job_id_is_36_characters_of_either_case(text: str) -> None:
    assert parse_job_id(text) == UUID(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f" {ID}",
        f"{ID}\n",
        ID.replace("-", ""),
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        ID[:-1],
        ID + "0",
        ID.replace("3", "g"),
        ID.replace("3", "３"),  # a digit, but not an ASCII one
        ID.replace("-", "_"),
        "3f0c7c1e6-a55-4f0e-9d7d-0d5a4c1b2a01",
        ID[:-1] + "\0",
        "x" * 10_000,
    ],
)
def test_anything_else_is_not_a_job_id(text: str) -> None:
    with pytest.raises(ContractError) as refused:
        parse_job_id(text)
    assert refused.value.code == "job-id"
    assert len(str(refused.value)) < 200
    assert "\0" not in str(refused.value)


def test_a_record_key_is_the_lower_case_text_of_the_job_id() -> None:
    assert key_of(parse_job_id(ID.upper())) == ID.encode()

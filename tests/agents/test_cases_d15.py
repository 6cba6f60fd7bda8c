"""D15: requests whose input holds what JSON does not have. Each is a run that was born FAILED, naming the field."""

import pytest

from store.database import Database
from streams.kafka.registry import SchemaRegistry
from streams.metrics import Metrics
from tests.agents.bench import request_value
from tests.agents.test_accept import Bench, accepting, assignment, record

INPUTS = {
    '{"ratio": NaN}': "NaN at /ratio is not a JSON number",
    '{"ratio": -Infinity}': "-Infinity at /ratio is not a JSON number",
    '{"ratio": 1e400}': "1e400 at /ratio is beyond the range of a double",
    '{"extras": {"score": NaN}}': "NaN at /extras/score is not a JSON number",
}


@pytest.mark.case("D15")
@pytest.mark.parametrize("as_text", [True, False], ids=["as text", "as an object"])
async def test_d15_a_request_with_what_json_does_not_have_is_born_failed_naming_the_field(
    database_url: str, as_text: bool
) -> None:
    values = [request_value(input=given if as_text else "?") for given in INPUTS]
    if not as_text:
        values = [value.replace(b'"?"', given.encode()) for value, given in zip(values, INPUTS, strict=True)]
    database = Database(database_url, pool_size=3)
    await database.open()
    metrics, registry = Metrics(), SchemaRegistry("http://127.0.0.1:9", timeout_seconds=1)
    bench = Bench(database_url, database, accepting(database, registry, metrics), metrics, registry)

    await bench.accept.store(assignment(), [record(offset, value) for offset, value in enumerate(values)])

    rows = await bench.rows("SELECT status, error FROM workflow_run ORDER BY created_at")
    assert [status for status, _ in rows] == ["FAILED"] * len(INPUTS)
    assert [says in error for (_, error), says in zip(rows, INPUTS.values(), strict=True)] == [True] * len(INPUTS)
    assert await bench.rows("SELECT count(*) FROM dead_letter") == [(0,)]
    await registry.close()
    await database.close()

"""What get-job tells of a run's items."""

import grpc
import pytest

from tests.driver.stories import TOKENIZE, embed_each
from tests.fixtures.grpc_server import Answer, ScriptedServer
from tests.web.conftest import Door

NO = Answer(status=grpc.StatusCode.INVALID_ARGUMENT, details="no such text")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_run_tells_how_many_items_it_has_and_which_failed(
    door: Door, grpc_server: ScriptedServer, fails: bool
) -> None:
    if fails:
        grpc_server.script(TOKENIZE, NO)
    answer = await door.ok("submit-workflow", {"workflow": embed_each(), "input": {"text": "a"}})
    job = await door.until_status(answer["jobId"], "FAILED" if fails else "COMPLETED")

    assert (job["itemsTotal"], job["itemsDone"], job["itemsFailed"]) == (1, int(not fails), int(fails))
    error = "GRPC: tokenize#0: INVALID_ARGUMENT: no such text"
    failed = [(item["step"], item["itemIndex"], item["status"], item["error"]) for item in job["failedItems"]]
    assert failed == ([("tokenize", 0, "FAILED", error)] if fails else [])

"""Schemas by registered type through whole workers: pinned when a run is submitted, and never resolved again."""

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from streams.dev.protoc import compile_protos
from tests.driver.stories import embed_reviewed_text
from tests.web.conftest import opened_door

DOCUMENT = embed_reviewed_text()
PROTO = DOCUMENT["schema"]["sources"]["text.proto"]


def write(folder: Path, text: str) -> None:
    files = descriptor_pb2.FileDescriptorSet(file=compile_protos({"text.proto": text}))
    (folder / "text.binpb").write_bytes(files.SerializeToString())


@pytest.mark.spec(14)
async def test_a_run_goes_on_with_the_types_it_was_submitted_with_where_others_or_none_are_registered(
    database_url: str, tmp_path: Path
) -> None:
    (types := tmp_path / "types").mkdir()
    write(types, PROTO)
    review = {**DOCUMENT["steps"][1], "rules": ["text = input.text"]}
    document = {"schema": {"type": "text.v1.Text"}, "inputType": "text.v1.Text", "steps": [review]}
    call = {"workflow": document, "input": {"text": "a"}}
    settings = {"database_url": database_url, "roles": "runs,web"}

    async with opened_door(**settings, types_dir=types) as door:
        submitted = [(await door.ok("submit-workflow", call))["jobId"] for _ in range(2)]
        for job_id in submitted:
            await door.until_status(job_id, "WAITING")

    write(types, PROTO.replace("bool approved = 1", "string verdict = 7"))
    for job_id, more in zip(submitted, ({"types_dir": types}, {}), strict=True):
        async with opened_door(**settings, **more) as door:
            refused = await door.ok("check-workflow", {"workflow": document})
            assert refused["ok"] is bool(more)  # the name stands for something else now, or for nothing
            answer = {"jobId": job_id, "stepName": "review", "response": {"approved": True}}
            assert (await door.ok("complete-step", answer))["ok"] is True
            job = await door.until_status(job_id, "COMPLETED")
            assert job["result"] == {"approved": True}

"""The raw limit of intake: the same rows over one connection, without Kafka, decoding, checks or second looks."""

import json
import time
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

import psycopg

from tests.bench.statements import OPTIONS, sql
from tests.bench.workload import NAME, TARGET, WorkRequest

BATCH_RECORDS: Final = 500


def insert_runs(url: str, requests: Sequence[WorkRequest]) -> float:
    """Insert *requests* as queued runs, 500 a commit, and return how many seconds that took."""
    with psycopg.connect(url, autocommit=True, options=OPTIONS, prepare_threshold=0) as connection:
        hash_text = _definition_hash(connection)
        began = time.perf_counter()
        for start in range(0, len(requests), BATCH_RECORDS):
            batch = requests[start : start + BATCH_RECORDS]
            rows = [_row(ordinal, request, hash_text) for ordinal, request in enumerate(batch)]
            cursor = connection.execute(sql("insert_runs"), {"rows": json.dumps(rows)})
            assert cursor.rowcount == len(batch)
        return time.perf_counter() - began


def _row(ordinal: int, request: WorkRequest, definition_hash: str) -> dict[str, object]:
    return {
        "job_id": str(request.job_id),
        "event_id": str(uuid4()),
        "ordinal": ordinal,
        "definition_hash": definition_hash,
        "fingerprint": request.job_id.hex * 2,
        "workflow_name": NAME,
        "business_key": request.business_key,
        "target": TARGET,
        "input": {"text": request.text},
    }


def _definition_hash(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    row = connection.execute("select encode(definition_hash, 'hex') from workflow where name = %s", [NAME]).fetchone()
    assert row is not None
    return str(row[0])

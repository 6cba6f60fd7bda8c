"""What tests of intake's edge share."""

from collections.abc import AsyncIterator, Callable

import pytest

from store.database import Database
from store.positions import Positions
from streams.kafka.intake_operations import IntakeOperations
from streams.kafka.security import KafkaSecurity
from tests.agents.bench import IntakeBench

Operate = Callable[[IntakeBench], IntakeOperations]
"""What an operator can do to a bench's topic and group."""


@pytest.fixture
async def operate(database_url: str) -> AsyncIterator[Operate]:
    database = Database(database_url, pool_size=2)
    await database.open()

    def operations(intake: IntakeBench) -> IntakeOperations:
        return IntakeOperations(
            bootstrap=intake.kafka.bootstrap,
            security=KafkaSecurity(),
            group_id=intake.group,
            topic=intake.topic,
            positions=Positions(database, on_committed=lambda payloads: None),
            actor="cli:anna",
        )

    yield operations
    await database.close()

import asyncio
from collections.abc import Sequence

import psycopg
import pytest

from schemas.errors import MigrationRefused, StoreUnavailable
from store.migrate import Migration, StoreFacts, apply_database_settings, check, migrate, migrations, plan

FIRST = Migration(1, "0001_first", "create table first (id integer); insert into first values (1);")
SECOND = Migration(2, "0002_second", "alter table first add column more text;")


async def rows(url: str, query: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await (await connection.execute(query.encode())).fetchall()


async def run(url: str, script: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(script.encode())


async def test_a_blank_database_gets_every_migration_once(blank_database_url: str) -> None:
    names = [migration.name for migration in migrations()]

    assert await plan(blank_database_url) == names
    assert await migrate(blank_database_url) == names
    assert await plan(blank_database_url) == []
    assert await migrate(blank_database_url) == []


async def test_a_plan_changes_nothing(blank_database_url: str) -> None:
    await plan(blank_database_url)

    assert await rows(blank_database_url, "select 1 from pg_namespace where nspname = 'workflow_runs'") == []


async def test_everything_is_made_in_the_schema_of_the_store(blank_database_url: str) -> None:
    await migrate(blank_database_url, [FIRST])

    assert await rows(blank_database_url, "select id from workflow_runs.first") == [(1,)]
    assert await rows(blank_database_url, "select version, name from workflow_runs.migration") == [(1, "0001_first")]


async def test_twenty_migrators_at_once_apply_each_migration_once(blank_database_url: str) -> None:
    applied = await asyncio.gather(*(migrate(blank_database_url) for _ in range(20)))

    assert sorted(name for names in applied for name in names) == [migration.name for migration in migrations()]


async def test_a_migrator_waits_for_the_one_at_work(blank_database_url: str) -> None:
    slow = Migration(1, "0001_slow", "create table slow (id integer);")
    async with await psycopg.AsyncConnection.connect(blank_database_url) as other:
        await other.execute("select pg_advisory_xact_lock(hashtextextended('workflow_runs migrate', 0))")
        waiting = asyncio.create_task(migrate(blank_database_url, [slow]))
        while not await rows(blank_database_url, "select from pg_locks where locktype = 'advisory' and not granted"):
            assert not waiting.done()
        assert await rows(blank_database_url, "select from pg_namespace where nspname = 'workflow_runs'") == []
        await other.rollback()

        assert await waiting == ["0001_slow"]


async def test_only_what_is_missing_is_applied(blank_database_url: str) -> None:
    await migrate(blank_database_url, [FIRST])

    assert await plan(blank_database_url, [FIRST, SECOND]) == ["0002_second"]
    assert await migrate(blank_database_url, [FIRST, SECOND]) == ["0002_second"]


async def test_a_migration_that_fails_leaves_nothing_of_itself_and_all_before_it(blank_database_url: str) -> None:
    broken = Migration(2, "0002_broken", "create table second (id integer); insert into missing values (1);")

    with pytest.raises(StoreUnavailable, match='relation "missing" does not exist'):
        await migrate(blank_database_url, [FIRST, broken])

    assert await rows(blank_database_url, "select version from workflow_runs.migration") == [(1,)]
    assert await rows(blank_database_url, "select to_regclass('workflow_runs.second') is null") == [(True,)]
    assert await migrate(blank_database_url, [FIRST, SECOND]) == ["0002_second"]


async def test_a_migration_changed_after_it_was_applied_is_refused(blank_database_url: str) -> None:
    await migrate(blank_database_url, [FIRST])
    changed = Migration(1, "0001_first", FIRST.text + " ")

    for attempt in (migrate, plan):
        with pytest.raises(MigrationRefused, match="0001_first was changed after it was applied"):
            await attempt(blank_database_url, [changed, SECOND])
    assert await rows(blank_database_url, "select count(*) from workflow_runs.migration") == [(1,)]


@pytest.mark.parametrize(
    ("known", "refusal"),
    [
        ([FIRST], "0002_second, which this program does not know .its newest is 0001_first.: use the newer program"),
        ([], "0001_first, which this program does not know"),
        ([FIRST, Migration(2, "0002_other", SECOND.text)], "0002_second where this program has 0002_other"),
    ],
)
async def test_migrations_of_another_program_are_refused(
    blank_database_url: str, known: Sequence[Migration], refusal: str
) -> None:
    await migrate(blank_database_url, [FIRST, SECOND])

    with pytest.raises(MigrationRefused, match=refusal):
        await migrate(blank_database_url, known)


async def test_the_planner_settings_reach_new_connections_of_the_role_in_this_database_alone(
    blank_database_url: str,
) -> None:
    await migrate(blank_database_url, [])

    names = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
    for name in names:
        assert await rows(blank_database_url, f"show {name}") == [("off",)]
    elsewhere = psycopg.conninfo.make_conninfo(blank_database_url, dbname="postgres")
    assert await rows(elsewhere, "show enable_seqscan") == [("on",)]


async def test_settings_are_applied_by_twenty_at_once(blank_database_url: str) -> None:
    await asyncio.gather(*(apply_database_settings(blank_database_url) for _ in range(20)))


async def test_a_role_without_rights_on_the_database_migrates_a_schema_that_was_made_for_it(
    blank_database_url: str,
) -> None:
    role = f"plain_{psycopg.conninfo.conninfo_to_dict(blank_database_url)['dbname']}"
    await run(
        blank_database_url,
        f"create role {role} login password 'secret'; create schema workflow_runs authorization {role};",
    )
    try:
        plain = psycopg.conninfo.make_conninfo(blank_database_url, user=role, password="secret")

        assert await migrate(plain) == [migration.name for migration in migrations()]
        assert (await check(plain)).problems() == []
    finally:
        await run(blank_database_url, f"drop owned by {role}; drop role {role};")


async def test_the_facts_of_a_migrated_database_are_good_to_start_on(database_url: str) -> None:
    facts = await check(database_url)

    assert facts.server_version >= 150_000
    assert facts.schema_level == 1
    assert facts.pending == ()
    assert facts.has_planner_settings
    assert (facts.synchronous_commit, facts.synchronous_standby_names) == ("on", "")
    assert facts.problems() == []


async def test_a_blank_database_is_told_to_be_migrated(blank_database_url: str) -> None:
    facts = await check(blank_database_url)

    assert facts.schema_level is None
    assert facts.problems() == ["the tables lack 0001_store: run `workflow-runs migrate`"]


async def test_a_program_starts_on_newer_tables_of_a_level_it_knows_and_on_no_others(database_url: str) -> None:
    await run(
        database_url, "insert into workflow_runs.migration (version, name, checksum) values (9999, '9999_newer', '')"
    )
    assert (await check(database_url)).problems() == []

    await run(database_url, "update workflow_runs.upkeep set schema_level = 2")
    [problem] = (await check(database_url)).problems()
    assert "start a newer program" in problem


async def test_missing_planner_settings_and_lost_commits_are_named(database_url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    await run(database_url, f"alter role postgres in database {name} reset all")
    await run(database_url, f"alter database {name} set synchronous_commit = off")

    facts = await check(database_url)

    assert [problem.partition(" is ")[0].partition(" are ")[0] for problem in facts.problems()] == [
        "the planner settings of this role",
        "synchronous_commit",
    ]
    assert len(facts.problems(allow_async_commit=True)) == 1


def test_a_server_that_is_too_old_is_named() -> None:
    facts = StoreFacts(
        server_version=140_011,
        schema_level=1,
        pending=(),
        has_planner_settings=True,
        synchronous_commit="on",
        synchronous_standby_names="",
    )

    assert facts.problems() == ["the server is Postgres 14, at least 15 is needed"]

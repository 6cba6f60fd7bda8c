"""The fixtures that every other test stands on."""

import psycopg


async def test_each_test_gets_a_migrated_database_of_its_own(database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        answer = await connection.execute("SELECT to_regclass('workflow_runs.run') IS NOT NULL, current_database()")
        assert await answer.fetchone() == (True, database_url.rsplit("/", 1)[1])


def test_the_planner_settings_of_the_template_hold_in_the_clone(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        answer = connection.execute(
            "SELECT setconfig FROM pg_db_role_setting WHERE setdatabase = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert any("enable_seqscan=off" in settings for (settings,) in answer)


def test_a_blank_database_has_no_tables_of_ours(blank_database_url: str) -> None:
    with psycopg.connect(blank_database_url) as connection:
        assert connection.execute("SELECT to_regnamespace('workflow_runs')").fetchone() == (None,)

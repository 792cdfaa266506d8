"""Histories in a table of a real PostgreSQL server, where one and psycopg are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from uuid import UUID

import pytest

from aaco.core.errors import BadCapture, Missing, StorageError, UsageError
from aaco.core.extras import missing
from aaco.profiler.histories import formats, postgresql
from aaco.profiler.histories.samples import ImportedHistory
from benchmarks.fleet._rclone import free_port

BIN = next((path.parent for path in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)
ROWS = """
CREATE TABLE runs (started timestamptz, commit text, Benchmark text, value numeric, unit text, note int);
CREATE VIEW v AS SELECT started AS time, commit, benchmark, value, unit FROM runs;
INSERT INTO runs VALUES ('2026-01-02 12:00+02', 'bb', 'decode', 12.5, 'ms', 1),
  ('2026-01-01', 'aa', 'decode', 12, 'ms', 2), ('2026-01-03', 'cc', 'decode', NULL, 'ms', 3),
  (NULL, 'dd', 'decode', 13, 'ms', 4), ('2026-01-01', 'aa', 'decode', 11, 'ms', 5);
"""


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """A server of our own with ROWS; what leads to it. A server refuses to run as root."""
    if BIN is None or find_spec("psycopg") is None:
        pytest.skip("needs PostgreSQL's server and psycopg: apt-get install postgresql; pip install 'psycopg[binary]'")
    who = {"user": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="aaco-pg-") as name:
        folder = Path(name)
        if who:
            shutil.chown(folder, "postgres")
        (folder / "password").write_text("let-me-in")
        (folder / "password").chmod(0o644)
        subprocess.run([BIN / "initdb", "-D", folder / "data", "-U", "ann", "--auth=scram-sha-256", "--no-sync",
                        "--pwfile", folder / "password"], check=True, capture_output=True, cwd=folder, **who)
        port = free_port()
        pg_ctl = [BIN / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log"]
        subprocess.run([*pg_ctl, "-o", f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off", "start"],
                       check=True, capture_output=True, cwd=folder, **who)
        try:
            account = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGDATABASE": "postgres", "PGUSER": "ann",
                       "PGPASSWORD": "let-me-in"}
            subprocess.run([BIN / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-c", ROWS], check=True,
                           env=os.environ | account)
            yield account
        finally:
            subprocess.run([*pg_ctl, "-m", "immediate", "stop"], check=True, capture_output=True, cwd=folder, **who)


@pytest.fixture
def account(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.items():
        monkeypatch.setenv(name, value)


def read(table: str) -> ImportedHistory:
    return formats.read(Path(f"postgresql:{table}"))


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("table", ["v", "public.v"])
def test_rows_come_in_the_order_of_time(table: str) -> None:
    """Mutation: no ORDER BY, so the order of insertion."""
    history = read(table)
    assert [(sample.commit, sample.value) for sample in history.samples] in (
        [("aa", 12), ("aa", 11), ("bb", 12.5)], [("aa", 11), ("aa", 12), ("bb", 12.5)])
    assert history.samples[2].time_ns == int(datetime(2026, 1, 2, 10, tzinfo=UTC).timestamp()) * 10**9
    assert {sample.process for sample in history.samples if sample.commit == "aa"} == {0, 1}
    assert history.left_out == {"without a time": 1, "not a finite number": 1}


@pytest.mark.usefixtures("account")
def test_what_cannot_be_read_is_named_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for table, why in (("runs", "no column of a time"), ("nothing", "does not exist"), ("no.x", "does not exist")):
        with pytest.raises(BadCapture, match=why):
            read(table)
    monkeypatch.setenv("PGPASSWORD", "wrong-password")
    with pytest.raises(StorageError, match="password authentication failed") as refused:
        read("v")
    assert "wrong-password" not in str(refused.value)


@pytest.mark.parametrize("name", ["//ann:secret@host/db", "", "a.b.c", "x; DROP TABLE runs", 'a"b'])
def test_a_name_that_is_no_table_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(UsageError, match="no name of a PostgreSQL table") as refused:
        read(name)
    assert "secret" not in str(refused.value) and "DROP" not in str(refused.value)


def test_values_are_those_of_a_plain_file() -> None:
    assert repr(postgresql.plain(Decimal("1.50"))) == "1.5"
    assert postgresql.plain(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00+00:00"
    assert postgresql.plain(UUID(int=1)) == "00000000-0000-0000-0000-000000000001"
    assert postgresql.plain(None) is None


@pytest.mark.skipif(find_spec("psycopg") is not None, reason="psycopg is installed")
def test_without_psycopg_the_extra_is_named() -> None:
    with pytest.raises(ModuleNotFoundError) as raised:
        read("v")
    message = missing(raised.value)
    assert isinstance(message, Missing) and "aaco[postgres]" in message.fix

"""The registry: schema, durability settings, pages."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import autogenerate, config, script
from alembic.runtime import migration

from workspaced_server.workspaces.record import Record, State
from workspaced_server.workspaces.registry import Query, Registry, RegistryUnavailable, upgrade
from workspaced_server.workspaces.tables import REVISION, metadata, properties

pytestmark = pytest.mark.anyio


def record(number: int, **changes: object) -> Record:
    made = Record(
        key=f"{number:032x}",
        owner="local",
        workspace_id=f"w{number}",
        backend="local",
        state=State.READY,
        spec=b"",
        requested=b"",
        token="t",
        create_time=1000 + number // 3,
        update_time=1,
        last_used_time=1,
        revision=number + 1,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["migrated", "made at once"])
async def test_migrations_make_the_tables_that_the_code_declares(tmp_path: Path, way: str) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'r.db'}")
    if way == "migrated":
        with engine.begin() as connection:
            upgrade(connection, None)
    registry = await Registry.open(tmp_path / "r.db")
    await registry.insert(record(1))
    await registry.aclose()
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == REVISION
        context = migration.MigrationContext.configure(connection, opts={"compare_type": True})
        others = sa.MetaData()
        for table in metadata.sorted_tables:
            if table.name != "alembic_version":  # which alembic leaves out of its comparison
                table.to_metadata(others)
        assert autogenerate.compare_metadata(context, others) == []
    engine.dispose()


def test_the_newest_migration_is_the_one_that_the_code_names() -> None:
    import workspaced_server.workspaces.migrations as migrations

    settings = config.Config()
    settings.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert script.ScriptDirectory.from_config(settings).get_heads() == [REVISION]


async def test_the_file_is_private_and_every_transition_synced(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    assert stat.S_IMODE((tmp_path / "r.db").stat().st_mode) == 0o600

    def pragmas() -> tuple[object, object]:
        with registry._engine.connect() as connection:
            read = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
            return read[0], read[1]

    assert await registry._run(pragmas) == ("wal", 2)
    await registry.aclose()


async def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    stored = record(
        1,
        labels={"a": "ü"},
        ref={"id": [1, "x"]},
        restore=State.CLOSED,
        state=State.INITIALIZING,
        spec=b"\0\xff",
        disposable=True,
    )
    await registry.insert(stored)
    assert await registry.get(stored.key) == stored
    changed = replace(stored, ref=None, restore=None, state=State.READY)
    await registry.update(changed)
    assert await registry.get(stored.key) == changed
    await registry.delete(stored.key)
    assert await registry.get(stored.key) is None
    await registry.insert(stored)
    with pytest.raises(sa.exc.IntegrityError):
        await registry.insert(stored)
    await registry.aclose()


async def test_pages_hold_every_record_once_and_in_order(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    for number in range(25):
        await registry.insert(record(number, labels={"even": str(number % 2 == 0)}, owner="ab"[number % 2]))
    for query, expected in (
        (Query(), list(range(25))),
        (Query(owner="a"), list(range(0, 25, 2))),
        (Query(labels={"even": "False"}), list(range(1, 25, 2))),
        (Query(workspace_ids=frozenset({"w3", "w4"})), [3, 4]),
        (Query(states=frozenset({State.CLOSED})), []),
    ):
        found: list[Record] = []
        while True:
            after = (found[-1].create_time, found[-1].key) if found else None
            page = await registry.page(replace(query, after=after), 4)
            found += page
            if len(page) < 4:
                break
        assert [item.workspace_id for item in found] == [f"w{number}" for number in expected]
    await registry.aclose()


async def test_a_cancelled_write_is_done_all_the_same(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    task = asyncio.create_task(registry.insert(record(1)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await registry.get(record(1).key) is not None
    await registry.aclose()


async def test_the_installation_id_is_made_once(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    first = await registry.installation_id()
    assert await registry.installation_id() == first
    await registry.aclose()
    again = await Registry.open(tmp_path / "r.db")
    assert await again.installation_id() == first
    await again.aclose()


async def test_a_registry_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    await registry._run(lambda: registry._execute(sa.text("DROP TABLE workspaces")))
    with pytest.raises(RegistryUnavailable) as caught:
        await registry.get("x")
    assert "workspaces" not in caught.value.message
    await registry.aclose()


async def test_the_registry_of_a_newer_server_is_refused_as_it_is(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    await registry.aclose()
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'r.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'from_the_future'"))
    with pytest.raises(RegistryUnavailable) as caught:
        await Registry.open(tmp_path / "r.db")
    assert "newer" in caught.value.detail
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "from_the_future"
    engine.dispose()


async def test_works_that_wait_together_share_a_transaction(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    commits: list[object] = []
    sa.event.listen(registry._engine, "commit", commits.append)
    gate = threading.Event()
    blocked = asyncio.create_task(registry.transact(lambda _: gate.wait()))
    statement = properties.insert()

    def write(number: int) -> Callable[[sa.Connection], int]:
        return lambda connection: connection.execute(statement.values(name=f"n{number}", value="v")).rowcount

    waiting = [asyncio.create_task(registry.share(write(number))) for number in range(50)]
    await asyncio.sleep(0)
    gate.set()
    assert await asyncio.gather(*waiting) == [1] * 50
    await blocked
    assert len(commits) == 2
    await registry.aclose()


async def test_one_that_fails_spoils_nothing_for_the_others(tmp_path: Path) -> None:
    registry = await Registry.open(tmp_path / "r.db")
    gate = threading.Event()
    blocked = asyncio.create_task(registry.transact(lambda _: gate.wait()))

    def write(name: str) -> Callable[[sa.Connection], int]:
        return lambda connection: connection.execute(properties.insert().values(name=name, value="v")).rowcount

    names = ["a", "b", "a", "c"]
    waiting = [asyncio.create_task(registry.share(write(name))) for name in names]
    await asyncio.sleep(0)
    waiting[1].cancel()
    gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[0] == 1
    assert isinstance(results[1], asyncio.CancelledError)  # written all the same: it had begun
    assert isinstance(results[2], sa.exc.IntegrityError)
    assert results[3] == 1
    await blocked
    read = sa.select(properties.c.name).where(properties.c.name.in_(names))
    assert await registry.transact(lambda c: set(c.execute(read).scalars())) == {"a", "b", "c"}
    await registry.aclose()

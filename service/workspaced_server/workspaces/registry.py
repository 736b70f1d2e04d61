"""What exists, durably: the registry in SQL. SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.workspaces.record import Record, State
from workspaced_server.workspaces.rows import Rows, SecretsUnreadable
from workspaced_server.workspaces.tables import REVISION, metadata, properties, version, workspaces
from workspaced_server.workspaces.vault import Vault

T = TypeVar("T")
_POSTGRES_THREADS = 4


@dataclass(frozen=True, slots=True)
class Query:
    """Which records are meant; what is None or empty does not restrict. ``after`` is (create_time, key) of the last
    one seen.
    """

    owner: str | None = None
    states: frozenset[State] = frozenset()
    backends: frozenset[str] = frozenset()
    workspace_ids: frozenset[str] = frozenset()
    labels: Mapping[str, str] | None = None
    after: tuple[int, str] | None = None

    def matches(self, record: Record, *, any_state: bool = False) -> bool:
        """Whether the record is meant, ``after`` aside; with ``any_state`` whatever its state."""
        return (
            (self.owner is None or record.owner == self.owner)
            and (any_state or not self.states or record.state in self.states)
            and (not self.backends or record.backend in self.backends)
            and (not self.workspace_ids or record.workspace_id in self.workspace_ids)
            and all(record.labels.get(key) == value for key, value in (self.labels or {}).items())
        )


class Registry:
    """The tables, through threads of their own, so that no other blocking work delays a state transition.

    A write that has begun is finished even when its caller is cancelled, and is durable when the method returns.
    """

    def __init__(self, engine: sa.Engine, threads: int, vault: Vault | None = None) -> None:
        self._engine = engine
        self._rows = Rows(vault)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="registry")
        self._shared: deque[tuple[Callable[[sa.Connection], Any], Future[Any]]] = deque()

    @classmethod
    async def open(cls, target: str | Path, vault: Vault | None = None) -> Registry:
        """Connect to a URL or an SQLite file, and bring the schema up to date. ``vault`` encrypts specs with secrets.

        Raises OSError, RegistryUnavailable, also when it lacks the key of what is encrypted, or
        ``sqlalchemy.exc.SQLAlchemyError``.
        """
        if isinstance(target, Path):
            parsed = sa.URL.create("sqlite", database=str(target))
        else:
            parsed = sa.make_url(target)
        if parsed.get_backend_name() == "sqlite":
            engine = sa.create_engine(parsed, poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False})
            sa.event.listen(engine, "connect", _configure_sqlite)
            registry = cls(engine, 1, vault)
            if parsed.database and parsed.database != ":memory:":
                _create_private(Path(parsed.database))
        else:
            engine = sa.create_engine(parsed, pool_size=_POSTGRES_THREADS, max_overflow=0, pool_pre_ping=True)
            registry = cls(engine, _POSTGRES_THREADS, vault)
        try:
            await registry._run(registry._migrate)
            await registry._run(registry._check_key)
        except BaseException:
            await registry.aclose()
            raise
        return registry

    async def aclose(self) -> None:
        """Disconnect. Idempotent."""
        try:
            await self._run(self._engine.dispose)
        except RuntimeError:  # the executor was shut down before
            return
        self._executor.shutdown(wait=False)

    async def transact(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in one transaction, in a thread of the registry. For the tables of other parts of the server.

        A write that has begun is finished even when the caller is cancelled, and is durable when this returns.
        """

        return await self._run(lambda: self._alone(work))

    async def share(self, work: Callable[[sa.Connection], T]) -> T:
        """The same, in one transaction with the work of whoever else waits by then: syncing takes longer than writing.

        When one of them fails, each runs once more, alone: ``work`` changes nothing but the database.
        """
        future: Future[T] = Future()
        self._shared.append((work, future))
        self._executor.submit(self._run_shared)
        return await _finished(asyncio.wrap_future(future))

    def _run_shared(self) -> None:
        waiting = []
        with suppress(IndexError):  # asking whether there are any more is no use: threads may share them out
            while True:
                waiting.append(self._shared.popleft())
        if len(waiting) > 1:
            try:
                with self._engine.begin() as connection:
                    results = [work(connection) for work, _ in waiting]
            except Exception:  # noqa: BLE001  # whose fault it is shows when each runs alone
                pass
            else:
                for (_, future), result in zip(waiting, results, strict=True):
                    future.set_result(result)
                return
        for work, future in waiting:
            try:
                future.set_result(_translated(partial(self._alone, work)))
            except BaseException as error:  # noqa: BLE001  # it is told to who waits for it
                future.set_exception(error)

    def _alone(self, work: Callable[[sa.Connection], T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)

    async def installation_id(self) -> str:
        """The id of this registry, made once; provider resources carry it, so that another registry's are never
        swept.
        """
        return await self._run(self._installation_id)

    async def insert(self, record: Record, check: Callable[[Sequence[Record]], None] | None = None) -> None:
        """Add a record, unless ``check``, which is given all of its owner's, raises: then nothing is changed.

        Raises ``sqlalchemy.exc.IntegrityError`` when the key exists.
        """
        await self._run(lambda: self._insert(record, check))

    async def claim(self, record: Record, spare: str, check: Callable[[Sequence[Record]], None] | None = None) -> bool:
        """The same in the place of the READY record with key ``spare``; False, and nothing is changed, without one."""

        def write() -> bool:
            with self._engine.begin() as connection:
                statement = workspaces.delete().where(workspaces.c.key == spare, workspaces.c.state == "READY")
                if connection.execute(statement).rowcount != 1:
                    return False
                self._add(connection, record, check)
                return True

        return await self._run(write)

    def _insert(self, record: Record, check: Callable[[Sequence[Record]], None] | None) -> None:
        with self._engine.begin() as connection:
            self._add(connection, record, check)

    def _add(self, connection: sa.Connection, record: Record, check: Callable[[Sequence[Record]], None] | None) -> None:
        if check is not None:
            if self._engine.dialect.name == "postgresql":
                # Two transactions would not see each other's rows; SQLite has one at a time.
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(record.owner))))
            rows = connection.execute(workspaces.select().where(workspaces.c.owner == record.owner)).mappings()
            check([self._rows.record(row) for row in rows])
        connection.execute(workspaces.insert().values(self._rows.values(record)))

    async def update(self, record: Record) -> None:
        """Replace the record with this key."""
        changed = workspaces.update().where(workspaces.c.key == record.key)
        await self._run(lambda: self._execute(changed.values(self._rows.values(record))))

    async def delete(self, key: str) -> None:
        """Remove the record with this key. Idempotent."""
        await self._run(lambda: self._execute(workspaces.delete().where(workspaces.c.key == key)))

    async def touch(self, times: Mapping[str, int]) -> None:
        """Set ``last_used_time`` of the records with these keys, in one transaction."""
        if not times:
            return
        statement = (
            workspaces.update().where(workspaces.c.key == sa.bindparam("k")).values(last_used_time=sa.bindparam("t"))
        )
        rows = [{"k": key, "t": value} for key, value in times.items()]
        await self.share(lambda connection: connection.execute(statement, rows))

    async def get(self, key: str) -> Record | None:
        """The record with this key."""
        return next(iter(await self._select(workspaces.select().where(workspaces.c.key == key))), None)

    async def find_by_id(self, workspace_id: str, limit: int = 2) -> list[Record]:
        """Records of any owner with this id."""
        return await self._select(workspaces.select().where(workspaces.c.workspace_id == workspace_id).limit(limit))

    async def find_by_request(self, owner: str, request_id: str, since: int) -> Record | None:
        """The record that this request created at or after ``since``."""
        statement = workspaces.select().where(
            workspaces.c.owner == owner, workspaces.c.request_id == request_id, workspaces.c.create_time >= since
        )
        return next(iter(await self._select(statement.limit(1))), None)

    async def in_states(self, *states: State) -> list[Record]:
        """All records in one of these states."""
        return await self._select(workspaces.select().where(workspaces.c.state.in_([state.name for state in states])))

    async def idle(self, now: int) -> list[Record]:
        """READY records whose idle time is over, as far as the stored time of last use tells."""
        due = workspaces.c.last_used_time + workspaces.c.idle_seconds * 1_000_000
        return await self._select(
            workspaces.select().where(workspaces.c.state == "READY", workspaces.c.idle_seconds > 0, due <= now)
        )

    async def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Those of ``keys``, which sandboxes carry, that a record owns."""

        def read() -> set[str]:
            c = workspaces.c
            statement = sa.union(
                sa.select(c.key).where(c.key.in_(keys), c.sandbox_key == ""),
                sa.select(c.sandbox_key).where(c.sandbox_key.in_(keys)),
            )
            with self._engine.connect() as connection:
                return set(connection.execute(statement).scalars())

        return await self._run(read)

    async def last_revision(self) -> int:
        """The largest revision of any record, or 0."""

        def read() -> int:
            with self._engine.connect() as connection:
                return int(connection.execute(sa.select(sa.func.max(workspaces.c.revision))).scalar() or 0)

        return await self._run(read)

    async def page(self, query: Query, size: int) -> list[Record]:
        """Up to ``size`` records that match, by time of creation. Fewer than ``size``: there are no more."""
        found: list[Record] = []
        after = query.after
        batch = max(size, 200)
        while True:
            statement = _restrict(query, after).order_by(workspaces.c.create_time, workspaces.c.key).limit(batch)
            records = await self._select(statement)
            for record in records:
                # Labels are compared here: no JSON operator is the same in every database.
                if query.matches(record):
                    found.append(record)
                    if len(found) == size:
                        return found
            if len(records) < batch:
                return found
            after = (records[-1].create_time, records[-1].key)

    async def _select(self, statement: sa.Select[Any]) -> list[Record]:
        def read() -> list[Record]:
            with self._engine.connect() as connection:
                return [self._rows.record(row) for row in connection.execute(statement).mappings()]

        return await self._run(read)

    def _execute(self, statement: sa.Executable) -> None:
        with self._engine.begin() as connection:
            connection.execute(statement)

    async def _run(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread of the registry; a cancelled caller still waits for its end."""
        return await _finished(asyncio.get_running_loop().run_in_executor(self._executor, _translated, work))

    def _installation_id(self) -> str:
        with self._engine.begin() as connection:
            statement = sa.select(properties.c.value).where(properties.c.name == "installation_id")
            found = connection.execute(statement).scalar()
            if found is None:
                found = secrets.token_hex(8)
                connection.execute(properties.insert().values(name="installation_id", value=found))
            return str(found)

    def _check_key(self) -> None:
        """Whatever is encrypted must be readable: a server must not begin to serve with half of its workspaces."""
        with self._engine.connect() as connection:
            for row in connection.execute(workspaces.select()).mappings():
                if self._rows.sealed(row):
                    self._rows.record(row)

    def _migrate(self) -> None:
        with self._engine.begin() as connection:
            if not sa.inspect(connection).has_table(version.name):
                # As the migrations would leave it; alembic would take 12 MB that most servers never need again.
                metadata.create_all(connection)
                connection.execute(version.insert().values(version_num=REVISION))
                return
            present = connection.execute(sa.select(version.c.version_num)).scalar()
            if present != REVISION:
                upgrade(connection, present)


def upgrade(connection: sa.Connection, present: object) -> None:
    """Run the migrations that an older registry lacks. Raises RegistryUnavailable for one of a newer server."""
    from alembic import command, config
    from alembic.util import CommandError

    settings = config.Config()
    settings.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    settings.attributes["connection"] = connection
    try:
        command.upgrade(settings, "head")
    except CommandError as error:
        # This server cannot know what its tables mean.
        raise RegistryUnavailable(f"a newer server has written it (its schema is {present})") from error


async def _finished(future: asyncio.Future[T]) -> T:
    """What it gives; a cancelled caller still waits for its end."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()  # retrieved: the caller is gone
        raise cancelled
    return future.result()


def _translated(work: Callable[[], T]) -> T:
    try:
        return work()
    except SecretsUnreadable as error:
        raise RegistryUnavailable(str(error)) from error
    except sa.exc.OperationalError as error:
        # Disk full, database locked or unreachable: nothing was changed, and the same call may succeed later.
        raise RegistryUnavailable(str(error.orig)) from error


class RegistryUnavailable(WorkspacedError):
    """The registry cannot be read or written now. Nothing was changed. ``detail`` is for the log only."""

    def __init__(self, detail: str) -> None:
        WorkspacedError.__init__(
            self, Code.UNAVAILABLE, "REGISTRY_UNAVAILABLE", "the server's registry cannot be used now", retry_after=1.0
        )
        self.detail = detail


def _configure_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON", "cache_size=-2000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _create_private(path: Path) -> None:
    """Make the database file readable by the server alone: it holds the environment of workspaces, and their tokens."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _restrict(query: Query, after: tuple[int, str] | None) -> sa.Select[Any]:
    c = workspaces.c
    statement = workspaces.select()
    if query.owner is not None:
        statement = statement.where(c.owner == query.owner)
    if query.states:
        statement = statement.where(c.state.in_([state.name for state in query.states]))
    if query.backends:
        statement = statement.where(c.backend.in_(query.backends))
    if query.workspace_ids:
        statement = statement.where(c.workspace_id.in_(query.workspace_ids))
    if after is not None:
        later = sa.and_(c.create_time == after[0], c.key > after[1])
        statement = statement.where(sa.or_(c.create_time > after[0], later))
    return statement

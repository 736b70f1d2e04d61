"""What is declared, durably: one list for each pair that ever changed it; others have the workspace's defaults."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import sqlalchemy as sa
from google.protobuf.message import DecodeError
from sqlalchemy.exc import IntegrityError

from workspaced.v1 import mcp_pb2, workspace_pb2
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.mcps import failures
from workspaced_server.partitions import Pair
from workspaced_server.workspaces import spec
from workspaced_server.workspaces.registry import Registry
from workspaced_server.workspaces.tables import mcp_lists
from workspaced_server.workspaces.vault import Vault, unreadable

# Lists that are kept in memory, so that a call of a tool reads nothing from the registry.
_CACHED = 1000
MAX_DECLARED = 200
"""How many a pair may have."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """One MCP server of a pair. ``problem`` says why its secrets are not there; ``mcp`` is without them then."""

    mcp: mcp_pb2.Mcp
    identity: bytes
    problem: WorkspacedError | None = None

    @property
    def name(self) -> str:
        """The name, unique within the pair."""
        return self.mcp.name

    @property
    def secrets(self) -> list[str]:
        """Values that nobody may read."""
        found = [*self.mcp.stdio.env.values(), *self.mcp.http.headers.values()]
        parts = urlsplit(self.mcp.http.url)
        return [*found, *(text for text in (parts.password, parts.username) if text)]

    def redacted(self) -> mcp_pb2.Mcp:
        """The declaration as callers may read it."""
        copy = mcp_pb2.Mcp()
        copy.CopyFrom(self.mcp)
        spec.redact(copy)
        if copy.WhichOneof("transport") == "http":
            parts = urlsplit(copy.http.url)
            if "@" in parts.netloc:
                host = parts.netloc.rpartition("@")[2]
                copy.http.url = parts._replace(netloc=f"{spec.REDACTED}@{host}").geturl()
        return copy


@dataclass(frozen=True, slots=True)
class Declared:
    """The list of a pair, in the order of declaration."""

    mcps: tuple[Declaration, ...]
    inherited: bool

    def find(self, name: str) -> Declaration | None:
        """The one of that name."""
        return next((item for item in self.mcps if item.name == name), None)


def declaration(mcp: mcp_pb2.Mcp) -> Declaration:
    """A checked message as a declaration. Equal ones have the same identity."""
    copy = mcp_pb2.Mcp()
    copy.CopyFrom(mcp)
    if copy.WhichOneof("transport") == "http" and not copy.http.kind:
        copy.http.kind = mcp_pb2.MCP_HTTP_KIND_STREAMABLE
    normal = mcp_pb2.Mcp()
    normal.CopyFrom(copy)
    for field in (normal.enabled_tools, normal.disabled_tools):
        field[:] = sorted(set(field))
    return Declaration(copy, normal.SerializeToString(deterministic=True))


class Declarations:
    """Reads and changes lists of pairs. Changes are durable when a method returns; raises WorkspacedError."""

    def __init__(self, registry: Registry, vault: Vault) -> None:
        self._registry = registry
        self._vault = vault
        self._cache: OrderedDict[tuple[str, Pair], tuple[Declaration, ...] | None] = OrderedDict()
        self._changes = 0
        self._defaults: OrderedDict[str, tuple[workspace_pb2.WorkspaceSpec, tuple[Declaration, ...]]] = OrderedDict()

    async def get(self, workspace: str, pair: Pair, of: workspace_pb2.WorkspaceSpec) -> Declared:
        """The list of the pair."""
        key = (workspace, pair)
        if key in self._cache:
            self._cache.move_to_end(key)
            own = self._cache[key]
        else:
            before = self._changes
            own = await self._registry.transact(lambda connection: self._read(connection, workspace, pair))
            if before == self._changes:  # else what was read may be old already
                self._cache[key] = own
                while len(self._cache) > _CACHED:
                    self._cache.popitem(last=False)
        return self._declared(own, workspace, of)

    async def add(self, workspace: str, pair: Pair, added: Declaration, of: workspace_pb2.WorkspaceSpec) -> bool:
        """Append to the list; False when the same declaration is there. Raises ALREADY_EXISTS, MCP_EXISTS."""

        def change(mcps: list[Declaration]) -> bool:
            check_free(mcps, added)
            if any(item.name == added.name for item in mcps):
                return False
            mcps.append(added)
            return True

        return await self._change(workspace, pair, of, change)

    async def remove(self, workspace: str, pair: Pair, name: str, of: workspace_pb2.WorkspaceSpec) -> bool:
        """Take out of the list; False when there is none of that name."""

        def change(mcps: list[Declaration]) -> bool:
            kept = [item for item in mcps if item.name != name]
            removed = len(kept) < len(mcps)
            mcps[:] = kept
            return removed

        return await self._change(workspace, pair, of, change)

    async def adopt(self, workspace: str, lists: Mapping[Pair, Sequence[mcp_pb2.Mcp]]) -> None:
        """Store lists that were made elsewhere. A pair that has one already keeps its own."""

        def work(connection: sa.Connection) -> None:
            for pair, mcps in lists.items():
                if self._read(connection, workspace, pair, lock=True) is None:
                    rows = [self._row(connection, declaration(mcp)) for mcp in mcps]
                    agent, session = pair.agent_id or "", pair.session_id or ""
                    values = {"workspace": workspace, "agent": agent, "session": session, "mcps": rows}
                    connection.execute(mcp_lists.insert().values(values))

        try:
            await self._registry.transact(work)
        finally:
            self.forget_cached(workspace)

    async def forget(self, workspace: str, matches: Callable[[Pair], bool]) -> int:
        """Forget the lists of these pairs, which have the defaults again; returns how many servers they held."""

        def work(connection: sa.Connection) -> int:
            columns = mcp_lists.c
            rows = connection.execute(
                sa.select(columns.agent, columns.session, columns.mcps).where(columns.workspace == workspace)
            ).all()
            count = 0
            for agent, session, stored in rows:
                if matches(Pair(agent or None, session or None)):
                    connection.execute(mcp_lists.delete().where(_is(workspace, agent, session)))
                    count += len(stored)
            return count

        try:
            return await self._registry.transact(work)
        finally:
            self._drop(lambda key: key[0] == workspace and matches(key[1]))

    def forget_cached(self, workspace: str) -> None:
        """Nothing of this workspace is kept in memory any more."""
        self._drop(lambda key: key[0] == workspace)
        self._defaults.pop(workspace, None)

    async def lost_key(self) -> bool:
        """Whether something stored needs a key file that is not there."""
        if self._vault.path.exists():
            return False
        return await self._registry.transact(_any_secret)

    async def _change(
        self,
        workspace: str,
        pair: Pair,
        of: workspace_pb2.WorkspaceSpec,
        change: Callable[[list[Declaration]], bool],
    ) -> bool:
        agent, session = pair.agent_id or "", pair.session_id or ""

        inherited = self._inherited(workspace, of)

        def work(connection: sa.Connection) -> bool:
            own = self._read(connection, workspace, pair, lock=True)
            mcps = list(inherited if own is None else own)
            if not change(mcps):
                return False
            if len(mcps) > MAX_DECLARED:
                raise _too_many()
            rows = [self._row(connection, item) for item in mcps]
            if own is None:
                values = {"workspace": workspace, "agent": agent, "session": session, "mcps": rows}
                connection.execute(mcp_lists.insert().values(values))
            else:
                connection.execute(mcp_lists.update().where(_is(workspace, agent, session)).values(mcps=rows))
            return True

        try:
            return await self._registry.transact(work)
        except IntegrityError as error:
            # The workspace was deleted, or another server made the first change of this pair at the same time.
            raise WorkspacedError(
                Code.UNAVAILABLE, "REGISTRY_UNAVAILABLE", "the list changed meanwhile; try again", retry_after=1.0
            ) from error
        finally:
            self._drop(lambda key: key == (workspace, pair))

    def _declared(self, own: Sequence[Declaration] | None, workspace: str, of: workspace_pb2.WorkspaceSpec) -> Declared:
        if own is None:
            return Declared(self._inherited(workspace, of), inherited=True)
        return Declared(tuple(own), inherited=False)

    def _inherited(self, workspace: str, of: workspace_pb2.WorkspaceSpec) -> tuple[Declaration, ...]:
        """The defaults of a spec, made into declarations once for as long as the workspace is in use."""
        known = self._defaults.get(workspace)
        if known is None or known[0] is not of:
            known = self._defaults[workspace] = (of, tuple(declaration(mcp) for mcp in of.default_mcps))
            while len(self._defaults) > _CACHED:
                self._defaults.popitem(last=False)
        return known[1]

    def _drop(self, matches: Callable[[tuple[str, Pair]], bool]) -> None:
        self._changes += 1
        for key in [key for key in self._cache if matches(key)]:
            del self._cache[key]

    def _read(
        self, connection: sa.Connection, workspace: str, pair: Pair, *, lock: bool = False
    ) -> tuple[Declaration, ...] | None:
        where = _is(workspace, pair.agent_id or "", pair.session_id or "")
        statement = sa.select(mcp_lists.c.mcps).where(where)
        stored = connection.execute(statement.with_for_update() if lock else statement).scalar()
        return None if stored is None else tuple(self._declaration(item) for item in stored)

    def _row(self, connection: sa.Connection, item: Declaration) -> dict[str, str]:
        if item.problem is not None:
            # What cannot be decrypted is kept as it is: the key may come back.
            return {"mcp": _encode(item.mcp), "secrets": item.identity.decode("ascii")}
        bare, secret = _split(item.mcp)
        token = ""
        if secret.ByteSize():
            token = self._vault.encrypt(secret.SerializeToString(), may_create=not _any_secret(connection))
        return {"mcp": _encode(bare), "secrets": token}

    def _declaration(self, row: dict[str, Any]) -> Declaration:
        mcp = mcp_pb2.Mcp.FromString(b64decode(row["mcp"]))
        token: str = row["secrets"]
        if token:
            try:
                mcp.MergeFrom(mcp_pb2.Mcp.FromString(self._vault.decrypt(token)))
            except DecodeError:
                return Declaration(mcp, token.encode("ascii"), unreadable("does not hold what belongs into it"))
            except WorkspacedError as error:
                return Declaration(mcp, token.encode("ascii"), error)
        return declaration(mcp)


def check_free(mcps: Sequence[Declaration], added: Declaration) -> None:
    """Raise ALREADY_EXISTS, MCP_EXISTS when another declaration has the name."""
    if any(item.name == added.name and item.identity != added.identity for item in mcps):
        raise failures.exists(added.name)


def _too_many() -> WorkspacedError:
    text = f"an agent and session may have {MAX_DECLARED} MCP servers; remove one"
    return WorkspacedError(
        Code.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", text, {"limit": str(MAX_DECLARED)}, quota=("mcps", text)
    )


def _is(workspace: str, agent: str, session: str) -> sa.ColumnElement[bool]:
    columns = mcp_lists.c
    return sa.and_(columns.workspace == workspace, columns.agent == agent, columns.session == session)


def _any_secret(connection: sa.Connection) -> bool:
    stored = connection.execute(sa.select(mcp_lists.c.mcps)).scalars()
    return any(item["secrets"] for mcps in stored for item in mcps)


def _encode(mcp: mcp_pb2.Mcp) -> str:
    return b64encode(mcp.SerializeToString()).decode("ascii")


def _split(mcp: mcp_pb2.Mcp) -> tuple[mcp_pb2.Mcp, mcp_pb2.Mcp]:
    """The declaration without what is secret, and that alone; merged they are the declaration."""
    bare, secret = mcp_pb2.Mcp(), mcp_pb2.Mcp()
    bare.CopyFrom(mcp)
    if mcp.stdio.env:
        secret.stdio.env.update(mcp.stdio.env)
        bare.stdio.env.clear()
    if mcp.http.headers:
        secret.http.headers.update(mcp.http.headers)
        bare.http.headers.clear()
    if "@" in urlsplit(mcp.http.url).netloc:
        secret.http.url = mcp.http.url
        parts = urlsplit(mcp.http.url)
        bare.http.url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return bare, secret

"""The registry's tables. A change here needs a migration in ``migrations/versions``; a test compares the two."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

REVISION = "0003"
"""The newest migration. A database that is at it needs no migration, and alembic is not even imported."""

version = sa.Table(
    "alembic_version", metadata, sa.Column("version_num", sa.String(32), primary_key=True, nullable=False)
)
"""Where alembic keeps the newest migration that was run."""

workspaces = sa.Table(
    "workspaces",
    metadata,
    sa.Column("key", sa.String(32), primary_key=True),
    sa.Column("owner", sa.String(256), nullable=False),
    sa.Column("workspace_id", sa.String(256), nullable=False),
    sa.Column("backend", sa.String(32), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("state_reason", sa.Text, nullable=False),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    sa.Column("requested", sa.LargeBinary, nullable=False),
    sa.Column("token", sa.String(128), nullable=False),
    sa.Column("labels", sa.JSON, nullable=False),
    sa.Column("request_id", sa.String(128), nullable=False),
    sa.Column("idle_seconds", sa.BigInteger, nullable=False),
    sa.Column("restore", sa.String(16), nullable=False),
    sa.Column("disposable", sa.Boolean, nullable=False),
    sa.Column("ref", sa.JSON(none_as_null=True), nullable=True),
    sa.Column("workdir", sa.Text, nullable=False),
    sa.Column("persistent", sa.Boolean, nullable=False),
    sa.Column("sandbox_key", sa.String(32), nullable=False, server_default=""),
    sa.Column("create_time", sa.BigInteger, nullable=False),
    sa.Column("update_time", sa.BigInteger, nullable=False),
    sa.Column("last_used_time", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Index("workspaces_by_time", "create_time", "key"),
    sa.Index("workspaces_by_id", "workspace_id"),
    sa.Index("workspaces_by_state", "state"),
    sa.Index("workspaces_by_request", "owner", "request_id"),
    sa.Index("workspaces_by_sandbox", "sandbox_key"),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("lease_id", sa.String(64), primary_key=True),
    sa.Column("owner", sa.String(256), nullable=False),
    sa.Column("workspace_key", sa.String(32), nullable=False),
    sa.Column("workspace_id", sa.String(256), nullable=False),
    sa.Column("duration", sa.BigInteger, nullable=False),
    sa.Column("expire_time", sa.BigInteger, nullable=False),
    sa.Index("leases_by_workspace", "workspace_key"),
)

properties = sa.Table(
    "properties",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

# The MCP servers of an agent and session that changed them; empty names are the ones without an id.
mcp_lists = sa.Table(
    "mcp_lists",
    metadata,
    sa.Column("workspace", sa.String(32), sa.ForeignKey("workspaces.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("agent", sa.String(200), primary_key=True),
    sa.Column("session", sa.String(200), primary_key=True),
    sa.Column("mcps", sa.JSON, nullable=False),
)

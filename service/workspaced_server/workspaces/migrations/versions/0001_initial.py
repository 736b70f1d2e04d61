"""Workspaces, and properties of the installation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "workspaces",
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
        sa.Column("ref", sa.JSON, nullable=True),
        sa.Column("workdir", sa.Text, nullable=False),
        sa.Column("persistent", sa.Boolean, nullable=False),
        sa.Column("create_time", sa.BigInteger, nullable=False),
        sa.Column("update_time", sa.BigInteger, nullable=False),
        sa.Column("last_used_time", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_index("workspaces_by_time", "workspaces", ["create_time", "key"])
    op.create_index("workspaces_by_id", "workspaces", ["workspace_id"])
    op.create_index("workspaces_by_state", "workspaces", ["state"])
    op.create_index("workspaces_by_request", "workspaces", ["owner", "request_id"])
    op.create_table(
        "properties",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("properties")
    op.drop_table("workspaces")

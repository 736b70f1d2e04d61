"""Leases, and sandboxes that come from a pool."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and the column."""
    op.add_column("workspaces", sa.Column("sandbox_key", sa.String(32), nullable=False, server_default=""))
    op.create_index("workspaces_by_sandbox", "workspaces", ["sandbox_key"])
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(256), nullable=False),
        sa.Column("workspace_key", sa.String(32), nullable=False),
        sa.Column("workspace_id", sa.String(256), nullable=False),
        sa.Column("duration", sa.BigInteger, nullable=False),
        sa.Column("expire_time", sa.BigInteger, nullable=False),
    )
    op.create_index("leases_by_workspace", "leases", ["workspace_key"])


def downgrade() -> None:
    """Remove both."""
    op.drop_table("leases")
    op.drop_index("workspaces_by_sandbox", "workspaces")
    op.drop_column("workspaces", "sandbox_key")

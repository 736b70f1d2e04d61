"""The MCP servers that agents have changed, a list for each agent and session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "mcp_lists",
        sa.Column("workspace", sa.String(32), sa.ForeignKey("workspaces.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("agent", sa.String(200), primary_key=True),
        sa.Column("session", sa.String(200), primary_key=True),
        sa.Column("mcps", sa.JSON, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("mcp_lists")

"""Run by alembic: applies migrations on the connection that the registry hands over."""

from __future__ import annotations

from alembic import context

from workspaced_server.workspaces.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()

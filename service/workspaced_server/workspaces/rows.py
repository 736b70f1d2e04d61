"""Rows of the registry and the records that they stand for. What a spec has of secrets is encrypted in a row."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from workspaced.v1 import workspace_pb2 as pb
from workspaced_server.errors import WorkspacedError
from workspaced_server.workspaces import spec
from workspaced_server.workspaces.record import Record, State
from workspaced_server.workspaces.vault import Vault

# No serialised WorkspaceSpec begins so: it would be a field of another wire type.
_SEAL = b"enc:"


class SecretsUnreadable(Exception):
    """A spec was encrypted with a key that this server does not have; the text is for its operator."""


class Rows:
    """Makes rows of records and records of rows. Blocks, so it is called in a thread."""

    def __init__(self, vault: Vault | None) -> None:
        self._vault = vault

    def values(self, record: Record) -> dict[str, Any]:
        """The row of a record."""
        return {
            "key": record.key,
            "owner": record.owner,
            "workspace_id": record.workspace_id,
            "backend": record.backend,
            "state": record.state.name,
            "state_reason": record.state_reason,
            "spec": self._seal(record.spec),
            "requested": self._seal(record.requested),
            "token": record.token,
            "labels": dict(record.labels),
            "request_id": record.request_id,
            "idle_seconds": record.idle_seconds,
            "restore": record.restore.name if record.restore else "",
            "disposable": record.disposable,
            "ref": None if record.ref is None else dict(record.ref),
            "workdir": record.workdir,
            "persistent": record.persistent,
            "sandbox_key": record.sandbox_key,
            "create_time": record.create_time,
            "update_time": record.update_time,
            "last_used_time": record.last_used_time,
            "revision": record.revision,
        }

    def record(self, row: sa.RowMapping) -> Record:
        """The record of a row. Raises SecretsUnreadable."""
        values = dict(row)
        values["state"] = State[values["state"]]
        values["restore"] = State[values["restore"]] if values["restore"] else None
        values["spec"], values["requested"] = self._open(values["spec"]), self._open(values["requested"])
        return Record(**values)

    @staticmethod
    def sealed(row: sa.RowMapping) -> bool:
        """Whether the row needs the key."""
        return bool(row["spec"].startswith(_SEAL))

    def _seal(self, data: bytes) -> bytes:
        if self._vault is None:
            return data
        parsed = pb.WorkspaceSpec.FromString(data)
        # The URL of an MCP server may hold a password.
        if not (parsed.default_mcps or spec.has_secrets(parsed)):
            return data
        try:
            return _SEAL + self._vault.encrypt(data, may_create=True).encode("ascii")
        except WorkspacedError as error:
            raise self._unreadable() from error

    def _open(self, data: bytes) -> bytes:
        if not data.startswith(_SEAL):
            return data
        if self._vault is None:
            raise self._unreadable()
        try:
            return self._vault.decrypt(data[len(_SEAL) :].decode("ascii", "replace"))
        except WorkspacedError as error:
            raise self._unreadable() from error

    def _unreadable(self) -> SecretsUnreadable:
        where = "a key file" if self._vault is None else f"the key file {self._vault.path}"
        return SecretsUnreadable(f"the secrets in it need {where}, which is lost, unusable or another one: restore it")

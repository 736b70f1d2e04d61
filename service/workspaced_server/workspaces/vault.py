"""Secrets of declarations, encrypted at rest by a key that lies beside the registry and not in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from workspaced_server.errors import Code, WorkspacedError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet


_log = structlog.stdlib.get_logger("workspaced.mcps")


class Vault:
    """Encrypts and decrypts with the keys of a file, one a line: the first encrypts, all of them decrypt.

    The file is made once, for the server's user alone, and read once. Methods block; they are called in a thread.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys: MultiFernet | None = None

    def encrypt(self, secret: bytes, *, may_create: bool) -> str:
        """The secret as text that only this key opens. ``may_create`` a key file when there is none.

        Raises WorkspacedError FAILED_PRECONDITION, MCP_SECRETS_UNREADABLE when the key cannot be used.
        """
        return self._load(may_create).encrypt(secret).decode("ascii")

    def decrypt(self, token: str) -> bytes:
        """What was encrypted. Raises WorkspacedError as `encrypt`."""
        from cryptography.fernet import InvalidToken

        try:
            return self._load(may_create=False).decrypt(token.encode("ascii"))
        except (InvalidToken, UnicodeEncodeError):
            raise unreadable("was encrypted with another key than this server has") from None

    def _load(self, may_create: bool) -> MultiFernet:
        if self._keys is None:
            from cryptography.fernet import Fernet, MultiFernet

            try:
                text = self._read(may_create)
                self._keys = MultiFernet([Fernet(line) for line in text.split()])
            except FileNotFoundError:
                raise unreadable("needs a key file that the server has lost") from None
            except (OSError, ValueError) as error:
                _log.error("the key file of MCP secrets cannot be used", path=str(self.path), cause=str(error))
                raise unreadable("needs a key file that the server cannot use") from error
        return self._keys

    def _read(self, may_create: bool) -> bytes:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not may_create:
                raise
            _create(self.path)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o077:
                raise PermissionError("others may read the key file")
            return file.read(65_536)


def unreadable(why: str) -> WorkspacedError:
    """The secrets of a declaration cannot be had."""
    return WorkspacedError(
        Code.FAILED_PRECONDITION,
        "MCP_SECRETS_UNREADABLE",
        f"the declaration {why}; its operator must restore the key, or remove the MCP server and add it again",
    )


def _create(path: Path) -> None:
    """Make the file with one new key, whole or not at all; one that is there meanwhile stays."""
    from cryptography.fernet import Fernet

    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(Fernet.generate_key() + b"\n")
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        temporary.unlink()

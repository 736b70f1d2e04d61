"""What every command shares: where the server is, who asks, and whether people or programs read the answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .failure import Failure
from .output import Printer

if TYPE_CHECKING:
    import workspaced

T = TypeVar("T")

DEFAULT_SERVER = "127.0.0.1:7420"


def configuration_directory() -> Path:
    """Where a user's own settings are: ``$XDG_CONFIG_HOME/workspaced``."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "workspaced"


@dataclass
class Session:
    """The global options. Fields are set while the command line is parsed."""

    server: str = DEFAULT_SERVER
    token: str | None = None
    token_file: Path | None = None
    tls: bool = False
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_server_name: str | None = None
    plaintext: bool = False
    json: bool = False

    @cached_property
    def printer(self) -> Printer:
        """Where answers go."""
        return Printer(self.json)

    def bearer_token(self) -> str | None:
        """The token to send. Raises `Failure` for a file that cannot be read or is empty."""
        if self.token:
            return self.token
        path = self.token_file
        if path is None:
            path = configuration_directory() / "token"
            if not path.exists():
                return None
        try:
            token = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"the token file {path} cannot be read: {error}", hint="name another with --token-file")
        if not token:
            raise Failure(f"the token file {path} is empty", hint="`workspaced token new NAME` makes a token")
        return token

    @asynccontextmanager
    async def connect(self, *, patient: bool = True) -> AsyncIterator[workspaced.Client]:
        """A client. One that is not ``patient`` gives up after two seconds."""
        import workspaced

        tls = None
        if self.tls or self.tls_ca or self.tls_cert or self.tls_key or self.tls_server_name:
            tls = workspaced.TLS(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key, server_name=self.tls_server_name)
        timing: dict[str, float] = {} if patient else {"timeout": 2.0, "retry_timeout": 0.0}
        async with workspaced.connect(
            self.server, token=self.bearer_token(), tls=tls, insecure=self.plaintext, **timing
        ) as client:
            yield client

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine function to its end. Ctrl-C cancels it and raises KeyboardInterrupt."""

        async def run() -> T:
            return await call()

        return asyncio.run(run())

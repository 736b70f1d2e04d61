"""Who calls: bearer tokens from a file, client certificates, or the one local principal.

A token is 256 random bits, so one round of SHA-256 is enough to store it: there is no dictionary to try, unlike with
passwords, and checking it costs microseconds at each call. A stored hash cannot be used to log in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from workspaced_server.config import AuthConfig, ConfigError
from workspaced_server.errors import Code, WorkspacedError
from workspaced_server.principal import LOCAL, Principal, Scope

_log = structlog.stdlib.get_logger("workspaced.auth")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/+-]{0,127}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_TOKEN_BYTES = 32
_MAX_TOKEN_CHARACTERS = 512
_CHECK_SECONDS = 1.0

Metadata = Mapping[str, str | bytes]
AuthContext = Mapping[str, Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token, to be shown once, and the line of the token file that makes it valid."""

    token: str
    line: str


def new_token(name: str, scopes: Iterable[str] = ("read", "execute", "manage")) -> NewToken:
    """Make a token for the principal ``name``. Raises ConfigError for a bad name or scope."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a principal: up to 128 of A-Z a-z 0-9 . _ @ : / + -, a letter or digit first"
        )
    parsed = parse_scopes(scopes)
    token = "wsd_" + secrets.token_urlsafe(_TOKEN_BYTES)
    names = ",".join(scope.name.lower() for scope in Scope if scope in parsed)
    return NewToken(token, f"{name} {names} sha256:{_digest(token)}")


def parse_scopes(names: Iterable[str]) -> frozenset[Scope]:
    """Scopes by their names in small letters. Raises ConfigError; an empty set is an error too."""
    scopes = set()
    for name in names:
        try:
            scopes.add(Scope[name.strip().upper()])
        except KeyError:
            known = ", ".join(scope.name.lower() for scope in Scope)
            raise ConfigError(f"{name!r} is not a scope; there are {known}") from None
    if not scopes:
        raise ConfigError("a principal without scopes cannot do anything")
    return frozenset(scopes)


class TokenFile:
    """Principals by token. The file is read again when it has changed; one that is wrong then changes nothing, and is
    logged.

    Lines are ``<principal> <scope,scope> sha256:<hex>``; empty ones and those that start with ``#`` are skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked_at = time.monotonic()
        self._stamp = self._stat()
        self._principals = self._read()

    def find(self, token: str) -> Principal | None:
        """The principal whose token this is."""
        self._refresh()
        digest = bytes.fromhex(_digest(token))
        found: Principal | None = None
        for stored, principal in self._principals:
            # No early exit: the time says nothing about which line, if any, is alike.
            if hmac.compare_digest(stored, digest):
                found = principal
        return found

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < _CHECK_SECONDS:
            return
        self._checked_at = now
        try:
            stamp = self._stat()
            if stamp == self._stamp:
                return
            self._principals = self._read()
            self._stamp = stamp
            _log.info("token file read again", path=str(self._path), tokens=len(self._principals))
        except ConfigError as error:
            _log.error("token file not read again; the earlier one stays in force", cause=str(error))

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise ConfigError(f"cannot read the token file {self._path}: {error.strerror}") from error
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _read(self) -> list[tuple[bytes, Principal]]:
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the token file {self._path}: {error}") from error
        principals = []
        for number, line in enumerate(text.splitlines(), 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            fields = line.split()
            if len(fields) != 3 or not _NAME.fullmatch(fields[0]) or not _HASH.fullmatch(fields[2]):
                # The line is not shown: somebody may have put the token itself there.
                raise ConfigError(f"{self._path}:{number}: not `<principal> <scope,scope> sha256:<64 hex digits>`")
            try:
                scopes = parse_scopes(fields[1].split(","))
            except ConfigError as error:
                raise ConfigError(f"{self._path}:{number}: {error}") from error
            principals.append((bytes.fromhex(fields[2].removeprefix("sha256:")), Principal(fields[0], scopes)))
        return principals


class Authenticator:
    """Tells who makes a call. A token, when there is one, decides; else the client's certificate."""

    def __init__(self, config: AuthConfig) -> None:
        self._tokens = TokenFile(config.token_file) if config.token_file is not None else None
        self._certificates = {
            name: Principal(name, parse_scopes(scopes)) for name, scopes in config.certificates.items()
        }
        self._open = not config.enabled

    def authenticate(self, metadata: Metadata, context: Callable[[], AuthContext]) -> Principal:
        """The caller; ``context`` is only asked when a certificate can matter.

        Raises UNAUTHENTICATED: TOKEN_MISSING, TOKEN_INVALID, CERTIFICATE_MISSING or CERTIFICATE_UNKNOWN.
        """
        if self._open:
            return LOCAL
        header = metadata.get("authorization")
        if header is not None and self._tokens is not None:
            scheme, _, token = str(header).partition(" ")
            token = token.strip()
            principal = None
            if scheme.lower() == "bearer" and 0 < len(token) <= _MAX_TOKEN_CHARACTERS:
                principal = self._tokens.find(token)
            if principal is None:
                raise _refused("TOKEN_INVALID", "the bearer token is not valid")
            return principal
        names = _certificate_names(context()) if self._certificates else ()
        for name in names:
            if name in self._certificates:
                return self._certificates[name]
        if names:
            raise _refused("CERTIFICATE_UNKNOWN", "the client certificate belongs to no principal of this server")
        if self._tokens is None:
            raise _refused("CERTIFICATE_MISSING", "a client certificate is needed")
        raise _refused("TOKEN_MISSING", "a bearer token is needed: metadata `authorization: Bearer <token>`")


def _certificate_names(context: AuthContext) -> Sequence[str]:
    """The names in a verified client certificate: URIs first, then DNS names, then the common name."""
    names: list[str] = []
    for key in ("peer_uri", "peer_dns", "x509_subject_alternative_name", "x509_common_name"):
        names += [value.decode("utf-8", "replace") for value in context.get(key, ())]
    return names


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _refused(reason: str, message: str) -> WorkspacedError:
    return WorkspacedError(Code.UNAUTHENTICATED, reason, message)

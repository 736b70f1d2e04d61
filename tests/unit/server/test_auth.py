"""Tokens and certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from workspaced_server.api import auth
from workspaced_server.api.auth import Authenticator, TokenFile, new_token
from workspaced_server.config import AuthConfig, ConfigError
from workspaced_server.errors import WorkspacedError
from workspaced_server.principal import LOCAL, Scope


@pytest.fixture(autouse=True)
def check_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "_CHECK_SECONDS", 0.0)


def replace(path: Path, text: str) -> None:
    """As an editor does it: a new file in the place of the old one."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


def test_a_new_token_is_long_and_its_line_does_not_hold_it() -> None:
    made = new_token("ci/build", ["manage", "read"])
    name, scopes, digest = made.line.split()
    assert (name, scopes) == ("ci/build", "read,manage")
    assert digest.startswith("sha256:")
    assert made.token not in made.line
    assert len(made.token) >= 43
    for name in ("", "two words", "-x", "x" * 129):
        with pytest.raises(ConfigError):
            new_token(name)
    with pytest.raises(ConfigError, match="rule"):
        new_token("x", ["rule"])


def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    ada, bob = new_token("ada", ["read"]), new_token("bob", ["read", "admin"])
    path.write_text(f"# who may\n\n{ada.line}\n")
    tokens = TokenFile(path)
    assert tokens.find(bob.token) is None
    found = tokens.find(ada.token)
    assert found is not None
    assert (found.name, found.scopes) == ("ada", frozenset({Scope.READ}))
    replace(path, bob.line)
    assert tokens.find(ada.token) is None
    found = tokens.find(bob.token)
    assert found is not None
    assert found.is_admin


def test_a_wrong_file_changes_nothing_later_and_is_refused_at_first(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    ada = new_token("ada", ["read"])
    path.write_text(ada.line)
    tokens = TokenFile(path)
    replace(path, f"ada read {ada.token}")
    assert tokens.find(ada.token) is not None
    with pytest.raises(ConfigError) as caught:
        TokenFile(path)
    assert ada.token not in str(caught.value)
    path.unlink()
    assert tokens.find(ada.token) is not None
    with pytest.raises(ConfigError):
        TokenFile(path)


def test_who_is_who(tmp_path: Path) -> None:
    assert Authenticator(AuthConfig()).authenticate({}, dict) is LOCAL
    path = tmp_path / "tokens"
    ada = new_token("ada", ["read"])
    path.write_text(ada.line)
    both = Authenticator(AuthConfig(path, {"spiffe://x/bob": ("read",), "carl": ("read",)}))

    def caller(authorization: str | None = None, **context: list[bytes]) -> str:
        metadata = {} if authorization is None else {"authorization": authorization}
        try:
            return both.authenticate(metadata, lambda: context).name
        except WorkspacedError as error:
            return error.reason

    assert caller() == "TOKEN_MISSING"
    assert caller(f"Bearer {ada.token}") == "ada"
    assert caller(f"bearer  {ada.token}") == "ada"
    for wrong in (
        ada.token,
        f"Basic {ada.token}",
        "Bearer ",
        "Bearer x",
        f"Bearer {ada.token}x",
        "Bearer " + "x" * 4000,
    ):
        assert caller(wrong) == "TOKEN_INVALID"
    assert caller(peer_uri=[b"spiffe://x/bob"]) == "spiffe://x/bob"
    assert caller(x509_common_name=[b"carl"]) == "carl"
    assert caller(x509_common_name=[b"mallory"]) == "CERTIFICATE_UNKNOWN"
    assert caller("Bearer x", x509_common_name=[b"carl"]) == "TOKEN_INVALID"

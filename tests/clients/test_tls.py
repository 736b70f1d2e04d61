"""TLS, certificates and tokens in every language: what is right works, what is wrong is a clear error, and soon."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from tests.clients.driver import Driver
from tests.support.server import ServerProcess
from workspaced_server.api.auth import new_token

PAST = {"not_before": datetime.now(UTC) - timedelta(days=10), "not_after": datetime.now(UTC) - timedelta(days=9)}
ABOUT_TLS = re.compile(
    r"cert|tls|ssl|handshake|authority|verif|x509|expired|altnames|preface|socket closed", re.IGNORECASE
)
SOON_SECONDS = 20.0
SERVERS = {
    "token": ("server", '[auth]\ntoken_file = "{tokens}"\n'),
    "expired": ("expired", '[auth]\ntoken_file = "{tokens}"\n'),
    "named": ("named", '[auth]\ntoken_file = "{tokens}"\n'),
    "mutual": ("server", '[auth.certificates]\n"agent.test" = ["read", "manage"]\n'),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private authority and what it issued, another authority, and tokens."""
    directory = tmp_path_factory.mktemp("tls")
    ours, theirs = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(directory / "ca.pem")
    theirs.cert_pem.write_to_path(directory / "other-ca.pem")

    def issue(authority: trustme.CA, name: str, *identities: str, **options: Any) -> None:
        made = authority.issue_cert(*identities, **options)
        (directory / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(directory / f"{name}.key")

    issue(ours, "server", "127.0.0.1", "localhost")
    issue(ours, "expired", "127.0.0.1", "localhost", **PAST)
    issue(ours, "named", "workspaces.test")
    issue(ours, "agent", "agent.test")
    issue(ours, "nobody", "nobody.test")
    issue(ours, "late", "agent.test", **PAST)
    issue(theirs, "stranger", "agent.test")
    write_tokens(directory, "all", "reader")
    return directory


def write_tokens(directory: Path, *names: str) -> None:
    """New tokens, each in a file of its name; none other is valid then."""
    lines = []
    for name in names:
        made = new_token("ada", ["read"] if name == "reader" else ["read", "execute", "manage"])
        (directory / name).write_text(made.token + "\n")
        lines.append(made.line)
    staged = directory / "tokens.new"
    staged.write_text("\n".join(lines) + "\n")
    staged.replace(directory / "tokens")


@pytest.fixture(scope="module")
def servers(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    """One server of each kind."""
    root, key, chain = ((files / name).read_bytes() for name in ("ca.pem", "agent.key", "agent.pem"))
    made = {}
    for name, (certificate, rest) in SERVERS.items():
        tls = f'[tls]\ncertificate = "{files / certificate}.pem"\nkey = "{files / certificate}.key"\n'
        if name in ("mutual", "optional"):
            tls += f'client_ca = "{files / "ca.pem"}"\n'
        config = tls + rest.format(tokens=files / "tokens")
        made[name] = ServerProcess(tmp_path_factory.mktemp(name) / "state", config=config)
        if name not in ("expired", "named"):  # nobody connects to these as they are
            made[name].credentials = grpc.ssl_channel_credentials(root, key, chain)
    made["plain"] = ServerProcess(tmp_path_factory.mktemp("plain") / "state")
    with ThreadPoolExecutor() as threads:
        list(threads.map(start, made.values()))
    yield made
    for server in made.values():
        server.stop()


def start(server: ServerProcess) -> None:
    """Start it, and wait until it takes connections."""
    server.start(ready="port" if server.credentials is None else "channel")


@dataclass(frozen=True)
class Attempt:
    """A client that connects to a server with some options, and what its first call has to come to.

    ``expected`` is the principal, or the kind of the error; then ``reason`` is its reason, and without one, the
    message has to say that it is about TLS when ``about_tls`` is set. Files are relative to the directory.
    """

    server: str
    expected: str
    reason: str = ""
    about_tls: bool = True
    options: dict[str, Any] = field(default_factory=dict)


def attempt(server: str, expected: str, reason: str = "", about_tls: bool = True, **options: Any) -> Attempt:
    """The same, shorter."""
    return Attempt(server, expected, reason, about_tls, options)


def try_all(driver: Driver, files: Path, servers: dict[str, ServerProcess], attempts: list[Attempt]) -> None:
    """All at once: a refusal takes as long as the library tries a server that never answered."""
    requests = []
    for number, one in enumerate(attempts):
        options = dict(one.options)
        for name in ("ca", "cert", "key", "token_file"):
            if name in options:
                options[name] = str(files / options[name])
        if "token" in options:
            options["token"] = (files / options["token"]).read_text().strip()
        args = {"as": f"client{number}", "address": servers[one.server].address, **options}
        assert driver.ask("connect", args) == {"ok": {}}
        requests.append(driver.start("server_info", {"client": f"client{number}"}))
    for number, (one, request) in enumerate(zip(attempts, requests, strict=True)):
        answer = request.answer(SOON_SECONDS)
        assert driver.ask("close_client", {"client": f"client{number}"}) == {"ok": {}}
        error = answer.get("error")
        if error is None:
            assert answer["ok"]["principal"] == one.expected, (one, answer)
            continue
        assert (error["kind"], error["reason"]) == (one.expected, one.reason), (one, error)
        if not one.reason and one.about_tls:
            assert ABOUT_TLS.search(error["message"]), (one, error)


def test_certificates_of_servers(driver: Driver, files: Path, servers: dict[str, ServerProcess]) -> None:
    """A private authority, another one, an expired certificate, one of another name, and none."""
    attempts = [
        attempt("token", "ada", ca="ca.pem", token="all"),
        attempt("token", "Unavailable", ca="other-ca.pem", token="all"),
        attempt("token", "Unavailable", tls=True, token="all"),
        attempt("token", "Unavailable", about_tls=False, token="all", insecure=True),
        attempt("expired", "Unavailable", ca="ca.pem", token="all"),
        attempt("named", "Unavailable", ca="ca.pem", token="all"),
        attempt("named", "ada", ca="ca.pem", server_name="workspaces.test", token="all"),
        attempt("named", "Unavailable", ca="ca.pem", server_name="other.test", token="all"),
        attempt("plain", "Unavailable", ca="ca.pem"),
        attempt("plain", "local"),
    ]
    try_all(driver, files, servers, attempts)


def test_certificates_of_clients(driver: Driver, files: Path, servers: dict[str, ServerProcess]) -> None:
    def with_certificate(name: str) -> dict[str, Any]:
        return {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key"}

    attempts = [
        attempt("mutual", "agent.test", **with_certificate("agent")),
        attempt("mutual", "Unavailable", about_tls=False, ca="ca.pem"),
        attempt("mutual", "Unavailable", about_tls=False, **with_certificate("stranger")),
        attempt("mutual", "Unavailable", about_tls=False, **with_certificate("late")),
        attempt("mutual", "Unauthenticated", "CERTIFICATE_UNKNOWN", **with_certificate("nobody")),
    ]
    try_all(driver, files, servers, attempts)


def test_tokens(driver: Driver, files: Path, servers: dict[str, ServerProcess]) -> None:
    (files / "wrong").write_text("wsd_wrong\n")
    attempts = [
        attempt("token", "Unauthenticated", "TOKEN_MISSING", ca="ca.pem"),
        attempt("token", "Unauthenticated", "TOKEN_INVALID", ca="ca.pem", token="wrong"),
    ]
    try_all(driver, files, servers, attempts)
    reader = (files / "reader").read_text().strip()
    driver.do("connect", address=servers["token"].address, ca=str(files / "ca.pem"), token=reader)
    answer = driver.ask("initialize", {"backend": "local"})
    assert answer["error"]["kind"] == "PermissionDenied"
    assert (answer["error"]["reason"], answer["error"]["metadata"]["scope"]) == ("SCOPE_MISSING", "MANAGE")
    driver.do("close_client")


def test_a_rotated_token(driver: Driver, files: Path, servers: dict[str, ServerProcess]) -> None:
    """Who reads its token anew goes on, with what is running; who kept the old one is told."""
    options = {"address": servers["token"].address, "ca": str(files / "ca.pem")}
    driver.ask("connect", {**options, "token_file": str(files / "all")})
    driver.ask("connect", {**options, "as": "fixed", "token": (files / "all").read_text().strip()})
    driver.do("initialize", backend="local", id="rotated")
    driver.do("exec", command="cat", stdin=True)
    driver.do("server_info", client="fixed")
    write_tokens(files, "all", "reader")
    deadline = time.monotonic() + 20
    while "ok" in (answer := driver.ask("server_info", {"client": "fixed"})):
        assert time.monotonic() < deadline, "the old token still works"
    assert (answer["error"]["kind"], answer["error"]["reason"]) == ("Unauthenticated", "TOKEN_INVALID")
    assert driver.do("server_info")["principal"] == "ada"
    driver.do("write", data="still here")
    assert driver.do("read", until="still here")["offset"] == 10
    driver.do("close_stdin")
    assert driver.do("wait")["exit_code"] == 0
    assert driver.do("run", command="exit 3")["exit_code"] == 3
    driver.do("ws_delete")
    for name in ("client", "fixed"):
        driver.do("close_client", client=name)

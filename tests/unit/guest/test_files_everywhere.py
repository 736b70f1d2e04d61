"""Each file and port operation once, on a real guest under each interpreter."""

from __future__ import annotations

import hashlib
import os
import socket

import pytest

from tests.support.guest_client import GuestClient, GuestError, RunningGuest


def test_every_operation(guest: RunningGuest, client: GuestClient) -> None:
    content = os.urandom(900_000)  # within the credit that a stream starts with
    sha256 = hashlib.sha256(content).hexdigest()
    watch = client.open("file.watch", {"path": ".", "recursive": True})
    assert watch.message() == {"ready": True, "mode": "inotify"}

    upload = client.open("file.write", {"path": "d/f\udcff", "parents": True, "mode": 0o640, "sha256": sha256})
    assert upload.message() == {"offset": 0}
    for start in range(0, len(content), 200_000):
        upload.send(content[start : start + 200_000])
    upload.end()
    written = upload.result()
    assert (written["sha256"], written["stat"]["mode"]) == (sha256, 0o640)
    assert (guest.workdir / "d" / "f\udcff").read_bytes() == content
    seen = watch.message()["events"]
    assert {"kind": "created", "path": "d", "type": "directory"} in seen

    reading = client.open("file.read", {"path": "d/f\udcff", "offset": 1, "hash": True})
    assert reading.message()["stat"]["size"] == len(content)
    result = reading.result()
    assert result == {"bytes": len(content) - 1, "eof": True, "sha256": hashlib.sha256(content[1:]).hexdigest()}

    adding = client.open("file.append", {"path": "log"})
    adding.send(b"line")
    adding.end()
    assert adding.result()["offset"] == 0
    assert client.call("file.mkdir", {"path": "e/f", "parents": True})["created"]
    assert client.call("file.copy", {"path": "d", "to": "c", "recursive": True})["bytes"] == len(content)
    assert client.call("file.move", {"path": "c", "to": "m"})["stat"]["type"] == "directory"
    assert client.call("file.stat", {"path": "m/f\udcff", "root": ".", "hash": True})["sha256"] == sha256
    listed = client.call("file.list", {"path": ".", "recursive": True, "glob": "**/f*"})["entries"]
    assert [entry["path"] for entry in listed] == ["d/f\udcff", "e/f", "m/f\udcff"]
    with pytest.raises(GuestError) as caught:
        client.call("file.stat", {"path": "../x", "root": "."})
    assert caught.value.reason == "PATH_ESCAPES"
    assert client.call("file.remove", {"path": "m", "recursive": True}) == {"removed": 2}

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert port in [entry["port"] for entry in client.call("port.list")["ports"]]
        tunnel = client.open("port.dial", {"port": port})
        assert tunnel.message()["connected"]["port"] == port
        connection, _ = server.accept()
        with connection:
            tunnel.send(b"hello")
            tunnel.end()
            assert connection.makefile("rb").read() == b"hello"
        assert tunnel.result() == {}
    watch.cancel()

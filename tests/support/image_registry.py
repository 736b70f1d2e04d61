"""An image registry of one image on the loopback interface, which engines accept without TLS.

with image_registry() as registry:
    registry.reference                   # 127.0.0.1:<port>/workspaced-test:pull
    registry.gate.clear()                # from now on the big layer stops in the middle, until it is set
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass
class ImageRegistry:
    """``stalled`` is set once a transfer waits for the gate."""

    blobs: dict[str, bytes]
    manifest: bytes
    port: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    stalled: threading.Event = field(default_factory=threading.Event)

    @property
    def reference(self) -> str:
        """What to pull."""
        return f"127.0.0.1:{self.port}/workspaced-test:pull"


def _layer(name: str, size: int) -> tuple[bytes, str]:
    content = os.urandom(size)  # so that no engine has the layer already
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = size
        archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0), _digest(plain.getvalue())


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _image() -> ImageRegistry:
    layers = [_layer("big", 3_000_000), _layer("small", 10)]
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [diff for _, diff in layers]},
            "history": [{"created_by": "test"} for _ in layers],
        }
    ).encode()
    entries = [
        {"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": len(data), "digest": _digest(data)}
        for data, _ in layers
    ]
    head = {"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(config)}
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": {**head, "digest": _digest(config)}}
    blobs = {_digest(config): config, **{_digest(data): data for data, _ in layers}}
    return ImageRegistry(blobs, json.dumps({**manifest, "layers": entries}).encode())


@contextmanager
def image_registry() -> Iterator[ImageRegistry]:
    """Serves until the block is left."""
    registry = _image()
    registry.gate.set()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            *_, kind, name = self.path.split("/")
            if self.path == "/v2/":
                self._answer(b"{}", "application/json")
            elif kind == "manifests" and name in ("pull", _digest(registry.manifest)):
                self._answer(registry.manifest, _MANIFEST)
            elif kind == "blobs" and name in registry.blobs:
                self._answer(registry.blobs[name], "application/octet-stream")
            else:
                self.send_response(404)
                body = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_GET  # noqa: N815  (http.server looks the method up by this name)

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", _digest(body))
            self.end_headers()
            if self.command == "HEAD":
                return
            half = len(body) // 2 if len(body) > 100_000 else 0
            self.wfile.write(body[:half])
            if half and not registry.gate.is_set():
                registry.stalled.set()
                registry.gate.wait(60)
            self.wfile.write(body[half:])

        def log_message(self, *arguments: object) -> None:
            """Silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *arguments: None  # type: ignore[method-assign]  # the engine may hang up
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        registry.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()

"""MCP servers that do it wrong, one way each; standard library only.

Run as ``python hostile_mcp_server.py WAY``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

_OUT = sys.stdout.buffer


def _answer(result: object, request: dict[str, object]) -> None:
    _OUT.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")
    _OUT.flush()


def _handshake() -> None:
    """Answer what comes until the list of tools was asked for."""
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                version = request["params"]["protocolVersion"]
                about = {"name": "hostile", "version": "0"}
                result = {"protocolVersion": version, "capabilities": {"tools": {}, "logging": {}}, "serverInfo": about}
                _answer(result, request)
            case "tools/list":
                tool = {"name": "go", "inputSchema": {"type": "object"}}
                _answer({"tools": [tool]}, request)
                return


def _wait_for_a_call() -> None:
    for line in sys.stdin:
        if json.loads(line).get("method") == "tools/call":
            return


def endless_line() -> None:
    """One line that never ends."""
    while True:
        _OUT.write(b"x" * 65_536)


def garbage() -> None:
    """Lines that are no JSON."""
    while True:
        _OUT.write(os.urandom(512).replace(b"\n", b"") + b"\n")


def chatty() -> None:
    """A greeting on the standard output, then nothing."""
    print("Server is ready.", flush=True)
    time.sleep(3600)


def silent() -> None:
    """No answer at all."""
    print("sulking", file=sys.stderr, flush=True)
    time.sleep(3600)


def exits() -> None:
    """Ends at once, with a secret on its standard error."""
    print(f"no licence for {os.environ.get('SECRET')}", file=sys.stderr)
    sys.exit(7)


def flood() -> None:
    """Notifications for ever, once the session runs."""
    _handshake()
    line = json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 200}}
    )
    while True:
        _OUT.write(line.encode() + b"\n")


def endless_result() -> None:
    """An answer to a call that never ends."""
    _handshake()
    _wait_for_a_call()
    endless_line()


def deaf() -> None:
    """Never reads again after the handshake."""
    _handshake()
    time.sleep(3600)


def patient() -> None:
    """Answers no call, and notes in a file beside it when one is cancelled."""
    _handshake()
    for line in sys.stdin:
        if json.loads(line).get("method") == "notifications/cancelled":
            with Path("cancelled").open("a") as file:
                file.write("x")


def endless_list() -> None:
    """A list of tools that always has one more page."""
    number = 0
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("method") == "initialize":
            version = request["params"]["protocolVersion"]
            about = {"name": "hostile", "version": "0"}
            _answer({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}, request)
        elif request.get("method") == "tools/list":
            number += 1
            tools = [{"name": f"t{number}", "inputSchema": {"type": "object"}}]
            _answer({"tools": tools, "nextCursor": str(number)}, request)


def stubborn() -> None:
    """Ignores the end of its input and SIGTERM."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _handshake()
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    globals()[sys.argv[1]]()

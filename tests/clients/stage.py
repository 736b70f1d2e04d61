"""Where cases play: real servers, a proxy in front of each for one case, and what can be done to them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from anyio.from_thread import BlockingPortal
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc

from tests.clients.languages import environment
from tests.support.faults import FaultPlan, FaultProxy, FaultRates
from tests.support.server import ServerProcess, free_port

_IDLE_SECONDS = 10.0


def _open_streams(stub: channelz_pb2_grpc.ChannelzStub, socket_id: int) -> int:
    try:
        data = stub.GetSocket(channelz_pb2.GetSocketRequest(socket_id=socket_id)).socket.data
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return 0  # closed meanwhile
        raise
    return int(data.streams_started - data.streams_succeeded - data.streams_failed)


class Server:
    """A real server whose open calls can be counted."""

    def __init__(self, state_dir: Path, config: str = "") -> None:
        self.admin = f"127.0.0.1:{free_port()}"
        self.process = ServerProcess(state_dir, config=f'admin_listen = "{self.admin}"\n{config}')

    def open_calls(self) -> int:
        """How many calls are open at the API's address now, by channelz: streams of the connections that there are.

        Not the server's own count of calls: one whose connection breaks before its headers are whole stays open in it.
        """
        with grpc.insecure_channel(self.admin) as channel:
            stub = channelz_pb2_grpc.ChannelzStub(channel)
            total = 0
            for server in stub.GetServers(channelz_pb2.GetServersRequest()).server:
                if any(str(self.process.port) in reference.name for reference in server.listen_socket):
                    request = channelz_pb2.GetServerSocketsRequest(server_id=server.ref.server_id, max_results=1000)
                    sockets = stub.GetServerSockets(request)
                    assert sockets.end
                    total += sum(_open_streams(stub, reference.socket_id) for reference in sockets.socket_ref)
            return total

    def wait_until_idle(self) -> None:
        """Wait until no call is open. Raises :class:`AssertionError` after ten seconds."""
        deadline = time.monotonic() + _IDLE_SECONDS
        while calls := self.open_calls():
            assert time.monotonic() < deadline, f"{calls} calls are still open at the server"
            time.sleep(0.05)


class Proxy:
    """A fault proxy in front of a server, on the portal's loop."""

    def __init__(self, portal: BlockingPortal, host: str, port: int) -> None:
        self._portal = portal
        self._proxy = FaultProxy(host, port)
        self._serving, self.port = portal.start_task(self._proxy.serve)

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def forwarded(self) -> int:
        """How many bytes have passed."""
        return self._proxy.forwarded

    def fault(self, kind: str | dict[str, Any]) -> None:
        """Do one of the faults that a step may name."""
        self._portal.call(self._fault, kind)

    def assert_all_happened(self) -> None:
        """The cuts at given bytes have come: a case without its fault shows nothing."""
        assert not self._proxy.due, f"{self._proxy.due} cuts did not come: too little was transferred"

    def close(self) -> None:
        """Break every connection and stop."""
        self._portal.call(self._proxy.cut_all)
        self._serving.cancel()

    async def _fault(self, kind: str | dict[str, Any]) -> None:
        proxy = self._proxy
        if isinstance(kind, dict):
            if "plan" in kind:
                plan = kind["plan"]
                proxy.plan = plan and FaultPlan(plan["seed"], FaultRates(**{k: plan[k] for k in plan if k != "seed"}))
            else:
                sizes = kind["cut_after_bytes"]
                proxy.cut_after(sizes if isinstance(sizes, list) else [sizes], kind["direction"])
        elif kind == "cut":
            proxy.cut_all()
        elif kind == "freeze":
            proxy.freeze()
        elif kind == "thaw":
            proxy.thaw()
        elif kind == "refuse":
            proxy.refuse = True
            proxy.cut_all()
        elif kind == "accept":
            proxy.refuse = False
        else:
            raise ValueError(f"no fault {kind!r}")


class Stage:
    """Servers, started when a case first needs them, and kept."""

    def __init__(self, directory: Path, portal: BlockingPortal) -> None:
        self._directory = directory
        self._portal = portal
        self._servers: dict[str, Server] = {}
        self._relays: dict[str, tuple[subprocess.Popen[str], int]] = {}

    def server(self, kind: str | dict[str, Any]) -> Server:
        """The running server of a kind."""
        key = json.dumps(kind, sort_keys=True)
        if key not in self._servers:
            config = kind["config"] if isinstance(kind, dict) else ""
            self._servers[key] = Server(self._directory / f"server{len(self._servers)}" / "state", config)
        server = self._servers[key]
        if server.process.process is None:
            server.process.start()
        return server

    @contextmanager
    def proxy(self, server: Server, relay: dict[str, Any] | None) -> Iterator[Proxy]:
        """A proxy for one case, in front of the server or of a relay to it."""
        port = server.process.port if relay is None else self._relay(server, relay)
        proxy = Proxy(self._portal, "127.0.0.1", port)
        try:
            yield proxy
        finally:
            proxy.close()

    def close(self) -> None:
        """Stop everything."""
        for process, _ in self._relays.values():
            process.terminate()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        for server in self._servers.values():
            if server.process.process is not None:
                server.process.stop()

    def _relay(self, server: Server, changes: dict[str, Any]) -> int:
        key = json.dumps([server.process.port, changes], sort_keys=True)
        if key not in self._relays:
            command = [sys.executable, "-m", "tests.clients.other_version", server.process.address, json.dumps(changes)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
            assert process.stdout is not None
            self._relays[key] = process, int(process.stdout.readline())
        return self._relays[key][1]

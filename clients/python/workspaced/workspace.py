"""A workspace: programs, files, ports, and what an agent has there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from . import result as results
from .connection import Connection
from .enums import PROCESS_STATES
from .files import Files
from .info import PortInfo, WorkspaceInfo
from .mcps import Mcps
from .offload import Offload
from .process import Process
from .process_info import ProcessInfo
from .result import Result
from .skills import Skills
from .spec import Command, DisconnectPolicy, OverflowPolicy, duration, new_id, process_spec
from .tools import Tools
from .tunnel import Forward, Tunnel
from .v1 import discovery_pb2, execution_pb2, lifecycle_pb2, management_pb2, port_pb2, process_pb2

MAX_OUTPUT_BYTES = 10 << 20


class Workspace:
    """A handle on a workspace, made by ``Client.initialize`` or ``Client.workspace``. It holds no resource.

    Every method raises :class:`WorkspaceNotFound`, :class:`WorkspaceNotReady` when it is closed, and
    :class:`Unreachable` when its sandbox is gone or does not answer (``Client.initialize`` recovers it).
    """

    def __init__(self, connection: Connection, workspace_id: str) -> None:
        self._connection = connection
        self.id = workspace_id
        self.files = Files(connection, workspace_id)
        self.tools = Tools(connection, workspace_id)
        self.mcps = Mcps(connection, workspace_id)
        self.skills = Skills(connection, workspace_id)
        self.offload = Offload(connection, workspace_id)

    def __repr__(self) -> str:
        return f"<workspaced.Workspace {self.id!r}>"

    async def info(self) -> WorkspaceInfo:
        """What the server knows of it now."""
        request = lifecycle_pb2.GetWorkspaceRequest(workspace_id=self.id)
        response = await self._connection.unary(self._connection.lifecycle.GetWorkspace, request)
        return WorkspaceInfo.from_proto(response.workspace)

    async def run(
        self,
        command: Command,
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        stdin: bytes | None = None,
        check: bool = False,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
        process_id: str | None = None,
        pty: tuple[int, int] | None = None,
        kill_grace: float | None = None,
        disconnect_policy: DisconnectPolicy | None = None,
        nice: int = 0,
    ) -> Result:
        """Run a command to its end. A string is a command line for ``/bin/sh -c``, a list a program and its arguments.

        ``timeout`` in seconds ends the whole process tree (reason TIMED_OUT, with the output so far). Of each stream
        the first ``max_output_bytes`` are returned. ``check`` raises :class:`CommandFailed` unless it exits with 0.
        Raises :class:`ProcessStartFailed` when it cannot be started. Survives broken connections of up to 10 s, without
        running the command twice; after that ``disconnect_policy="keep"`` is what keeps it alive.
        Cancellation ends the process tree, unless the policy is ``"keep"``: TERM at once, KILL 10 s later.
        """
        spec = process_spec(
            command, cwd=cwd, env=env, user=user, pty=pty, timeout=timeout, kill_grace=kill_grace,
            disconnect_policy=disconnect_policy, nice=nice,
        )  # fmt: skip
        result = await results.run(
            self._connection, self.id, process_id or new_id(), spec, stdin or b"", max_output_bytes
        )
        return result.check() if check else result

    def exec(
        self,
        command: Command,
        *,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        kill_grace: float | None = None,
        process_id: str | None = None,
        disconnect_policy: DisconnectPolicy | None = None,
        overflow_policy: OverflowPolicy | None = None,
        journal_limit_bytes: int = 0,
        nice: int = 0,
        gaps: Literal["raise", "yield"] = "raise",
    ) -> Process:
        """Start a process and attach to it: a context manager, which starts on entering and detaches on leaving.

        On entering it raises :class:`ProcessStartFailed`, or :class:`ProcessExists` for an id that runs something
        else; the same id with the same command attaches to what there is. ``pty`` is (columns, rows).
        """
        spec = process_spec(
            command, cwd=cwd, env=env, user=user, pty=pty, stdin=stdin, timeout=timeout, kill_grace=kill_grace,
            disconnect_policy=disconnect_policy, overflow_policy=overflow_policy,
            journal_limit_bytes=journal_limit_bytes, nice=nice,
        )  # fmt: skip
        return Process(self._connection, self.id, process_id or new_id(), start=spec, gaps=gaps)

    async def start(
        self,
        command: Command,
        *,
        stdin: bool = False,
        pty: tuple[int, int] | None = None,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        timeout: float | None = None,
        kill_grace: float | None = None,
        process_id: str | None = None,
        overflow_policy: OverflowPolicy | None = None,
        journal_limit_bytes: int = 0,
        nice: int = 0,
        gaps: Literal["raise", "yield"] = "raise",
    ) -> Process:
        """Start a process in the background, and return as soon as it runs. It goes on without this program.

        Nothing is attached until the handle is iterated over or written to. Idempotent by ``process_id``. A full
        journal drops its oldest part unless ``overflow_policy="block"``.
        """
        spec = process_spec(
            command, cwd=cwd, env=env, user=user, pty=pty, stdin=stdin, timeout=timeout, kill_grace=kill_grace,
            overflow_policy=overflow_policy, journal_limit_bytes=journal_limit_bytes, nice=nice,
        )  # fmt: skip
        process_id = process_id or new_id()
        request = execution_pb2.StartProcessRequest(workspace_id=self.id, process_id=process_id, spec=spec)
        await self._connection.unary(self._connection.execution.StartProcess, request)
        return Process(self._connection, self.id, process_id, gaps=gaps)

    async def attach(
        self,
        process_id: str,
        offset: int = 0,
        *,
        gaps: Literal["raise", "yield"] = "raise",
        read_only: bool = False,
    ) -> Process:
        """Attach to a process from an offset of its journal. ``read_only`` needs no more than the scope READ.

        Raises :class:`ProcessNotFound`, and :class:`OutOfRange` for an offset beyond the end. Close the handle, or use
        it as a context manager, to detach.
        """
        process = Process(self._connection, self.id, process_id, offset=offset, gaps=gaps, read_only=read_only)
        return await process.__aenter__()

    def process(self, process_id: str) -> Process:
        """A handle on a process, without asking the server. It attaches when it is iterated over or written to."""
        return Process(self._connection, self.id, process_id)

    async def processes(self, *, state: str | None = None) -> list[ProcessInfo]:
        """Processes by start time: all that are kept, or those in state ``"running"`` or ``"exited"``."""
        found: list[ProcessInfo] = []
        token = ""
        while True:
            request = execution_pb2.ListProcessesRequest(workspace_id=self.id, page_size=100, page_token=token)
            if state is not None:
                request.state = process_pb2.ProcessState.ValueType(PROCESS_STATES.number(state))
            response = await self._connection.unary(self._connection.execution.ListProcesses, request)
            found += map(ProcessInfo.from_proto, response.processes)
            token = response.next_page_token
            if not token:
                return found

    async def instructions(self, *, agent_id: str | None = None, session_id: str | None = None) -> str:
        """The text for an agent's system prompt: where it is, what it has, how to use it."""
        request = discovery_pb2.GetInstructionsRequest(workspace_id=self.id, agent_id=agent_id, session_id=session_id)
        response = await self._connection.unary(
            self._connection.discovery.GetInstructions, request, timeout=self._connection.long_timeout
        )
        return response.instructions

    async def purge_session(self, session_id: str, *, agent_id: str | None = None) -> None:
        """Remove what a session leaves behind: its MCP servers, contexts and tool results. Idempotent."""
        request = management_pb2.PurgeSessionRequest(workspace_id=self.id, agent_id=agent_id, session_id=session_id)
        await self._connection.unary(self._connection.management.PurgeSession, request)

    async def purge_agent(self, agent_id: str | None = None) -> None:
        """Remove what an agent leaves behind: its skills, and the MCP servers of all its sessions. Idempotent."""
        request = management_pb2.PurgeAgentRequest(workspace_id=self.id, agent_id=agent_id)
        await self._connection.unary(self._connection.management.PurgeAgent, request)

    async def ports(self) -> list[PortInfo]:
        """The TCP ports that listen inside, by number."""
        found: list[PortInfo] = []
        token = ""
        while True:
            request = port_pb2.ListPortsRequest(workspace_id=self.id, page_size=1000, page_token=token)
            response = await self._connection.unary(self._connection.ports.ListPorts, request)
            found += map(PortInfo.from_proto, response.ports)
            token = response.next_page_token
            if not token:
                return found

    def tunnel(self, port: int, *, host: str = "") -> Tunnel:
        """A byte stream to a port inside: a context manager, which connects on entering."""
        return Tunnel(self._connection, self.id, port, host)

    def forward(self, port: int, local_port: int = 0, *, host: str = "", local_host: str = "127.0.0.1") -> Forward:
        """A local port that leads to a port inside, while the context manager is open; local port 0 is a free one."""
        return Forward(self._connection, self.id, port, host, local_port, local_host)

    async def close(self, *, grace: float | None = None, timeout: float | None = None) -> WorkspaceInfo:
        """End its processes and suspend it as its backend does; ``Client.initialize`` resumes it. Idempotent.

        ``grace`` is the time in seconds from TERM to KILL for its processes (5).
        """
        request = lifecycle_pb2.CloseWorkspaceRequest(
            workspace_id=self.id, grace=None if grace is None else duration(grace)
        )
        response = await self._connection.unary(
            self._connection.lifecycle.CloseWorkspace, request, timeout=timeout or self._connection.long_timeout
        )
        return WorkspaceInfo.from_proto(response.workspace)

    async def reset(
        self, *, wipe_files: bool = False, kill_processes: bool = False, timeout: float | None = None
    ) -> WorkspaceInfo:
        """Remove MCP declarations, skills, sessions and data; with ``wipe_files`` also all files. Idempotent."""
        request = lifecycle_pb2.ResetWorkspaceRequest(
            workspace_id=self.id, wipe_files=wipe_files, kill_processes=kill_processes
        )
        response = await self._connection.unary(
            self._connection.lifecycle.ResetWorkspace, request, timeout=timeout or self._connection.long_timeout
        )
        return WorkspaceInfo.from_proto(response.workspace)

    async def delete(self, *, allow_missing: bool = False, timeout: float | None = None) -> None:
        """Delete it, its sandbox and its files. Idempotent with ``allow_missing``."""
        request = lifecycle_pb2.DeleteWorkspaceRequest(workspace_id=self.id, allow_missing=allow_missing)
        method = self._connection.lifecycle.DeleteWorkspace
        timeout = timeout or self._connection.long_timeout
        if allow_missing:
            await self._connection.unary(method, request, timeout=timeout)
        else:
            await self._connection.once(method, request, timeout=timeout)

"""Written by generate_sync.py from workspaced.workspace; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from workspaced import workspace as twin
from workspaced.info import PortInfo, WorkspaceInfo
from workspaced.process_info import ProcessInfo
from workspaced.result import Result
from workspaced.spec import Command, DisconnectPolicy, OverflowPolicy
from workspaced.workspace import MAX_OUTPUT_BYTES

from .files import Files
from .mcps import Mcps
from .offload import Offload
from .portal import call
from .process import Process
from .skills import Skills
from .tools import Tools
from .tunnel import Forward, Tunnel


class Workspace:
    """A handle on a workspace, made by ``Client.initialize`` or ``Client.workspace``. It holds no resource.

    Every method raises :class:`WorkspaceNotFound`, :class:`WorkspaceNotReady` when it is closed, and
    :class:`Unreachable` when its sandbox is gone or does not answer (``Client.initialize`` recovers it).
    """

    def __init__(self, asynchronous: twin.Workspace) -> None:
        self._twin = asynchronous

    @property
    def id(self) -> str:
        """As in the asynchronous face."""
        return self._twin.id

    @property
    def files(self) -> Files:
        """As in the asynchronous face."""
        return Files(self._twin.files)

    @property
    def tools(self) -> Tools:
        """As in the asynchronous face."""
        return Tools(self._twin.tools)

    @property
    def mcps(self) -> Mcps:
        """As in the asynchronous face."""
        return Mcps(self._twin.mcps)

    @property
    def skills(self) -> Skills:
        """As in the asynchronous face."""
        return Skills(self._twin.skills)

    @property
    def offload(self) -> Offload:
        """As in the asynchronous face."""
        return Offload(self._twin.offload)

    def __repr__(self) -> str:
        return self._twin.__repr__()

    def info(self) -> WorkspaceInfo:
        """What the server knows of it now."""
        return call(self._twin.info())

    def run(
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
        return call(
            self._twin.run(
                command,
                cwd=cwd,
                env=env,
                user=user,
                timeout=timeout,
                stdin=stdin,
                check=check,
                max_output_bytes=max_output_bytes,
                process_id=process_id,
                pty=pty,
                kill_grace=kill_grace,
                disconnect_policy=disconnect_policy,
                nice=nice,
            )
        )

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
        return Process(
            self._twin.exec(
                command,
                stdin=stdin,
                pty=pty,
                cwd=cwd,
                env=env,
                user=user,
                timeout=timeout,
                kill_grace=kill_grace,
                process_id=process_id,
                disconnect_policy=disconnect_policy,
                overflow_policy=overflow_policy,
                journal_limit_bytes=journal_limit_bytes,
                nice=nice,
                gaps=gaps,
            )
        )

    def start(
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
        return Process(
            call(
                self._twin.start(
                    command,
                    stdin=stdin,
                    pty=pty,
                    cwd=cwd,
                    env=env,
                    user=user,
                    timeout=timeout,
                    kill_grace=kill_grace,
                    process_id=process_id,
                    overflow_policy=overflow_policy,
                    journal_limit_bytes=journal_limit_bytes,
                    nice=nice,
                    gaps=gaps,
                )
            )
        )

    def attach(
        self, process_id: str, offset: int = 0, *, gaps: Literal["raise", "yield"] = "raise", read_only: bool = False
    ) -> Process:
        """Attach to a process from an offset of its journal. ``read_only`` needs no more than the scope READ.

        Raises :class:`ProcessNotFound`, and :class:`OutOfRange` for an offset beyond the end. Close the handle, or use
        it as a context manager, to detach.
        """
        return Process(call(self._twin.attach(process_id, offset, gaps=gaps, read_only=read_only)))

    def process(self, process_id: str) -> Process:
        """A handle on a process, without asking the server. It attaches when it is iterated over or written to."""
        return Process(self._twin.process(process_id))

    def processes(self, *, state: str | None = None) -> list[ProcessInfo]:
        """Processes by start time: all that are kept, or those in state ``"running"`` or ``"exited"``."""
        return call(self._twin.processes(state=state))

    def instructions(self, *, agent_id: str | None = None, session_id: str | None = None) -> str:
        """The text for an agent's system prompt: where it is, what it has, how to use it."""
        return call(self._twin.instructions(agent_id=agent_id, session_id=session_id))

    def purge_session(self, session_id: str, *, agent_id: str | None = None) -> None:
        """Remove what a session leaves behind: its MCP servers, contexts and tool results. Idempotent."""
        call(self._twin.purge_session(session_id, agent_id=agent_id))

    def purge_agent(self, agent_id: str | None = None) -> None:
        """Remove what an agent leaves behind: its skills, and the MCP servers of all its sessions. Idempotent."""
        call(self._twin.purge_agent(agent_id))

    def ports(self) -> list[PortInfo]:
        """The TCP ports that listen inside, by number."""
        return call(self._twin.ports())

    def tunnel(self, port: int, *, host: str = "") -> Tunnel:
        """A byte stream to a port inside: a context manager, which connects on entering."""
        return Tunnel(self._twin.tunnel(port, host=host))

    def forward(self, port: int, local_port: int = 0, *, host: str = "", local_host: str = "127.0.0.1") -> Forward:
        """A local port that leads to a port inside, while the context manager is open; local port 0 is a free one."""
        return Forward(self._twin.forward(port, local_port, host=host, local_host=local_host))

    def close(self, *, grace: float | None = None, timeout: float | None = None) -> WorkspaceInfo:
        """End its processes and suspend it as its backend does; ``Client.initialize`` resumes it. Idempotent.

        ``grace`` is the time in seconds from TERM to KILL for its processes (5).
        """
        return call(self._twin.close(grace=grace, timeout=timeout))

    def reset(
        self, *, wipe_files: bool = False, kill_processes: bool = False, timeout: float | None = None
    ) -> WorkspaceInfo:
        """Remove MCP declarations, skills, sessions and data; with ``wipe_files`` also all files. Idempotent."""
        return call(self._twin.reset(wipe_files=wipe_files, kill_processes=kill_processes, timeout=timeout))

    def delete(self, *, allow_missing: bool = False, timeout: float | None = None) -> None:
        """Delete it, its sandbox and its files. Idempotent with ``allow_missing``."""
        call(self._twin.delete(allow_missing=allow_missing, timeout=timeout))

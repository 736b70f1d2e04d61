"""Which processes belong to a tree, read from /proc."""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

ID_VARIABLE = b"WORKSPACED_PROCESS_ID"
# Process ids are the caller's and may be the same in two workspaces of one host; this one is the guest's.
KEY_VARIABLE = b"WORKSPACED_GUEST_KEY"


class Entry:
    """One line of the process table."""

    __slots__ = ("parent", "pid", "session", "start", "state")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        self.pid = pid
        self.state = fields[0]
        self.parent = int(fields[1])
        self.session = int(fields[3])
        self.start = int(fields[19])


def entry(pid: int) -> Entry | None:
    """The process with this pid; None when there is none."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    # The name in parentheses may hold anything, also parentheses.
    return Entry(pid, content[content.rindex(b")") + 2 :].split())


class Table:
    """The process table at one moment. Zombies count as parents, never as members."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._children: dict[int, list[Entry]] = {}
        self._sessions: dict[int, list[Entry]] = {}
        self._marks: dict[bytes, dict[bytes, list[Entry]]] | None = None
        for name in os.listdir("/proc"):
            if name.isdigit():
                found = entry(int(name))
                if found is not None:
                    self._entries[found.pid] = found
                    self._children.setdefault(found.parent, []).append(found)
                    self._sessions.setdefault(found.session, []).append(found)

    def lives(self, pid: int, start: int) -> bool:
        """Whether the process with this pid is still the one that was started then."""
        found = self._entries.get(pid)
        return found is not None and found.start == start

    def tree(self, pid: int, start: int, process_id: str, key: str) -> list[Entry]:
        """The living members of a tree whose leader has this pid and start time, the leader first if it lives.

        With a `pid` of 0 nobody is found by number: a leader that was reaped may have left its pid to a stranger.
        """
        seeds: list[Entry] = []
        leader = self._entries.get(pid)
        # Session 0 is the kernel's and that of a container's init.
        if pid > 1 and start > 0 and (leader is None or leader.start == start):
            if leader is not None:
                seeds.append(leader)
            seeds.extend(entry for entry in self._sessions.get(pid, ()) if entry.start >= start)
        seeds.extend(self._marked(process_id, key))
        spared = self._ancestry()
        members: dict[int, Entry] = {}
        while seeds:
            seed = seeds.pop(0)
            if seed.pid in spared or seed.pid in members:
                continue
            members[seed.pid] = seed
            seeds.extend(self._children.get(seed.pid, ()))
        return [member for member in members.values() if member.state not in (b"Z", b"X")]

    def _ancestry(self) -> set[int]:
        """The guest and whoever started it: never members of a tree, whatever the table looks like."""
        spared = {0, 1}
        pid = os.getpid()
        while pid not in spared:
            spared.add(pid)
            found = self._entries.get(pid)
            pid = found.parent if found is not None else 0
        return spared

    def _marked(self, process_id: str, key: str) -> Iterable[Entry]:
        if self._marks is None:
            self._marks = {}
            for found in self._entries.values():
                if found.state not in (b"Z", b"X"):
                    self._read_mark(found)
        return self._marks.get(key.encode(), {}).get(process_id.encode(), ())

    def _read_mark(self, found: Entry) -> None:
        assert self._marks is not None
        try:
            with open(f"/proc/{found.pid}/environ", "rb", buffering=0) as file:
                environment = file.read(1 << 20) or b""
        except OSError:
            return
        if KEY_VARIABLE not in environment:
            return
        values = dict(item.partition(b"=")[::2] for item in environment.split(b"\0"))
        key, process_id = values.get(KEY_VARIABLE), values.get(ID_VARIABLE)
        if key is not None and process_id is not None:
            self._marks.setdefault(key, {}).setdefault(process_id, []).append(found)


def signal_members(members: Iterable[Entry], number: int) -> set[int]:
    """Sends a signal to each; returns the pids that were there and allowed it."""
    reached: set[int] = set()
    for member in members:
        try:
            os.kill(member.pid, number)
            if number == signal.SIGTERM and member.state == b"T":
                os.kill(member.pid, signal.SIGCONT)
        except (ProcessLookupError, PermissionError):
            continue
        reached.add(member.pid)
    return reached

"""`top`: what workspaces do now, drawn again and again."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from .arguments import Command, parse_time
from .failure import describe
from .output import STYLES, age, size, visible
from .session import Session

if TYPE_CHECKING:
    from rich.table import Table

    import workspaced

AT_ONCE = 16
COLUMNS = ("ID", "STATE", "BACKEND", "RUNNING", "OUTPUT", "OUTPUT/S", "USED", "BUSIEST")


@dataclass(frozen=True)
class Line:
    """One workspace. ``output`` is what its kept processes wrote, ``rate`` bytes a second since the last look."""

    workspace_id: str
    state: str
    backend: str
    running: int | None
    output: int | None
    rate: float | None
    used: str
    busiest: str


class Watch:
    """Looks at all workspaces, and remembers what it saw, to tell rates."""

    def __init__(self, client: workspaced.Client) -> None:
        self._client = client
        self._seen: dict[tuple[str, str], int] = {}
        self._at = 0.0

    async def look(self) -> list[Line]:
        """The present lines, the busiest workspace first."""
        infos = await self._client.list()
        now = time.monotonic()
        elapsed, self._at = now - self._at if self._at else 0.0, now
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(info: workspaced.WorkspaceInfo) -> Line:
            async with slots:
                return await self._line(info, elapsed)

        lines = await asyncio.gather(*map(one, infos))
        return sorted(lines, key=lambda line: (-(line.rate or 0.0), -(line.running or 0), line.workspace_id))

    async def _line(self, info: workspaced.WorkspaceInfo, elapsed: float) -> Line:
        found: list[workspaced.ProcessInfo] | None = None
        if info.state == "READY":
            try:
                found = await self._client.workspace(info.workspace_id).processes()
            except Exception as error:
                if describe(error) is None:
                    raise
                found = None  # unreachable, or closed since: shown as unknown
        running = output = None
        rate, busiest, most = None, "-", 0
        if found is not None:
            running = sum(process.state == "RUNNING" for process in found)
            output = grown = 0
            for process in found:
                key = (info.workspace_id, process.process_id)
                more = process.next_offset - self._seen.get(key, process.next_offset if not elapsed else 0)
                self._seen[key] = process.next_offset
                output += process.next_offset
                grown += more
                if more > most:
                    most, busiest = more, process.process_id
            rate = grown / elapsed if elapsed else None
        used = age(info.last_used_time)
        return Line(info.workspace_id, str(info.state), str(info.backend), running, output, rate, used, busiest)


@click.command(cls=Command)
@click.option("-d", "--delay", type=parse_time, default="2s", metavar="TIME", help="Between looks; 2s if not given.")
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="N", help="Look so many times; 1 when not on a terminal."
)
@click.pass_obj
def top(session: Session, delay: float, count: int | None) -> None:
    """Show what workspaces do: how many processes run in each, and how much they write. Ctrl-C ends it.

    With --json each look is a line.
    """
    live = sys.stdout.isatty() and not session.json
    looks = count if count is not None or live else 1

    async def call() -> None:
        async with session.connect() as client:
            watch = Watch(client)
            if live:
                from rich.live import Live

                with Live(console=session.printer.console, auto_refresh=False, screen=looks is None) as screen:
                    await _repeat(watch, delay, looks, lambda lines: screen.update(_table(lines), refresh=True))
            elif session.json:
                await _repeat(watch, delay, looks, session.printer.line)
            else:
                await _repeat(watch, delay, looks, lambda lines: session.printer.table(COLUMNS, list(map(_row, lines))))

    session.run(call)


async def _repeat(watch: Watch, delay: float, looks: int | None, show: object) -> None:
    assert callable(show)
    done = 0
    while True:
        show(await watch.look())
        done += 1
        if done == looks:
            return
        await asyncio.sleep(delay)


def _row(line: Line) -> tuple[str, ...]:
    return (
        line.workspace_id,
        line.state,
        line.backend,
        "-" if line.running is None else str(line.running),
        "-" if line.output is None else size(line.output),
        "-" if line.rate is None else size(line.rate),
        line.used,
        line.busiest,
    )


def _table(lines: list[Line]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for line in lines:
        table.add_row(*(Text(visible(cell), style=STYLES.get(cell, "")) for cell in _row(line)))
    return table

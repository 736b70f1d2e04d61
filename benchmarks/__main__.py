"""``python -m benchmarks [NAME…] [--json FILE] [--check]``: measure, print; --check fails when a target is missed."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import allocation, clients, latency, mcps, memory, offloads, skills, throughput
from benchmarks.measure import Row
from benchmarks.world import World, world

Measurement = Callable[[World], Awaitable[Row | list[Row]]]
MEASUREMENTS: dict[str, Measurement] = {
    "run-docker": latency.run_true_docker,
    "run-local": latency.run_true_local,
    "initialize": latency.initialize_docker,
    "attach": latency.attach_first_byte,
    "stdout-docker": throughput.stdout_docker,
    "stdout-pipe": throughput.stdout_docker_exec_pipe,
    "stdout-local": throughput.stdout_local,
    "file-write": throughput.file_write,
    "file-read": throughput.file_read,
    "mcp-call": mcps.call,
    "mcp-ready": mcps.first_ready,
    "offload": offloads.append,
    "skills": skills.listing,
    "acquire": allocation.acquire,
    "memory": memory.idle,
    "clients-run": clients.run_true,
    "clients-stdout": clients.stdout,
    "clients-memory": clients.memory,
}


async def measure(names: list[str], console: Console) -> list[Row]:
    """Take the measurements in their order."""
    rows: list[Row] = []
    async with world() as everything:
        for name in names:
            with console.status(f"measuring {name}"):
                taken = await MEASUREMENTS[name](everything)
            rows += taken if isinstance(taken, list) else [taken]
    return rows


def table(rows: list[Row]) -> Table:
    """The rows as people read them."""
    drawn = Table(title=f"medians, {os.cpu_count()} cores, Python {platform.python_version()}")
    for column in ("measure", "workspaced", "peers", "target", "reached", ""):
        drawn.add_column(column, justify="right" if column in {"workspaced", "reached"} else "left")
    for row in rows:
        peers = "\n".join(f"{name} {value:.2f}" for name, value in row.peers.items())
        verdict = "ok" if row.ok else "MISSED"
        drawn.add_row(row.measure, f"{row.ours:.2f} {row.unit}", peers, row.target, row.reached, verdict)
    return drawn


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(MEASUREMENTS)}; default: all")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MEASUREMENTS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    console = Console()
    rows = asyncio.run(measure(arguments.names or list(MEASUREMENTS), console))
    console.print(table(rows))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
    return 1 if arguments.check and not all(row.ok for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

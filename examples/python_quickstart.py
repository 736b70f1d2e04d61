#!/usr/bin/env python3
"""A workspace from Python: files in, a program with live output, a background process found again.

python examples/python_quickstart.py [--target 127.0.0.1:7420] [--backend local] [--image python:3.12]
"""

from __future__ import annotations

import argparse
import asyncio
import sys

import workspaced

PROGRAM = """\
import time
for number in range(5):
    print("line", number, flush=True)
    time.sleep(0.2)
"""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--target", default="127.0.0.1:7420")
    parser.add_argument("--backend", help="the server's default unless given")
    parser.add_argument("--image", default="")
    arguments = parser.parse_args()

    async with workspaced.connect(arguments.target) as client:
        ws = await client.initialize(
            backend=arguments.backend,
            image=arguments.image,
            on_progress=lambda info: print(f"{info.state} {info.progress.phase if info.progress else ''}"),
        )
        try:
            await ws.files.write("program.py", PROGRAM)

            # Live output. A broken connection, or a restart of the server, would not be seen here.
            async with ws.exec(["python3", "program.py"]) as process:
                async for event in process:
                    if isinstance(event, workspaced.Output):
                        sys.stdout.write(event.data.decode())
                print(f"ended: {(await process.wait()).describe()}")

            # A process that outlives this program, and is found by the id that we chose.
            await ws.start(["python3", "program.py"], process_id="background")
            async with await ws.attach("background", offset=0) as process:
                first = await anext(process)
                print(f"from the background: {first}")

            result = await ws.run("wc -l < program.py", check=True)
            print(f"program.py has {result.stdout.decode().strip()} lines")
        finally:
            await ws.delete()


if __name__ == "__main__":
    asyncio.run(main())

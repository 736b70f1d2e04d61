"""The third: reads what the web server wrote, from its beginning, while it stops it; then deletes the workspace."""

import asyncio
import os
import sys

import workspaced


async def main() -> None:
    async with (
        workspaced.connect(os.environ.get("WORKSPACED_SERVER", "127.0.0.1:7420")) as client,
        client.acquire(
            policy="per_session",
            user_id="ada",
            agent_id="web",
            session_id="polyglot",
            backend=os.environ.get("BACKEND", "local"),
            image=os.environ.get("IMAGE", ""),
        ) as ws,
    ):
        async with await ws.attach("dev-server", offset=0) as process:
            await process.signal("TERM")
            async for event in process:
                if isinstance(event, workspaced.Output):
                    sys.stdout.write(event.data.decode())
            print("ended:", (await process.wait()).describe())
        await ws.delete()


asyncio.run(main())

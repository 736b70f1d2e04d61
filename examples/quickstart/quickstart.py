import asyncio
import sys

import workspaced


async def main() -> None:
    async with workspaced.connect([*sys.argv, "127.0.0.1:7420"][1]) as client:
        ws = await client.initialize(backend="local")
        await ws.files.write("count.sh", "for n in 1 2 3; do echo $n; sleep 0.1; done\n")
        async with ws.exec("sh count.sh") as process:
            async for event in process:
                if isinstance(event, workspaced.Output):
                    print(event.data.decode(), end="", flush=True)  # as it comes
            print("exit code", (await process.wait()).exit_code)
        for tool in await ws.tools.list():
            print(tool.name)  # for a model, with tool.description and tool.input_schema
        wanted = {"command": "wc -l count.sh"}  # what a model might ask for
        result = await ws.tools.call("Bash", wanted)
        print(result.text)
        await ws.delete()


asyncio.run(main())

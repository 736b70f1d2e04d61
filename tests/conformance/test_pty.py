"""A pseudo-terminal: job control, resize, echo."""

from __future__ import annotations

import anyio
import pytest

import workspaced

pytestmark = pytest.mark.anyio


async def read_until(process: workspaced.Process, needle: bytes, seconds: float = 60) -> bytes:
    output = b""
    with anyio.fail_after(seconds):
        async for event in process:
            assert event.stream == "pty"
            output += event.data
            if needle in output:
                return output
    raise AssertionError(f"{needle!r} never came: {output!r}")


async def test_size_and_resize(ws: workspaced.Workspace) -> None:
    async with ws.exec(["sh"], pty=(80, 24)) as process:
        await process.write(b"stty size\n")
        await read_until(process, b"24 80")
        await process.resize(132, 50)
        await process.write(b"stty size\n")
        await read_until(process, b"50 132")
        await process.write(b"exit 3\n")
        assert (await process.wait()).exit_code == 3


async def test_a_size_comes_before_the_input_that_is_written_after_it(ws: workspaced.Workspace) -> None:
    report = "import os\nprint('ready')\nwhile os.read(0, 99): print(os.get_terminal_size().columns)"
    async with ws.exec(["python3", "-uc", report], pty=(80, 24)) as process:
        await read_until(process, b"ready")
        for columns in (81, 82, 83):
            await process.resize(columns, 24)
            await process.write(b"\n")
            assert (await read_until(process, b"8")).split()[-1] == str(columns).encode()


async def test_ctrl_c_interrupts_the_foreground_job(ws: workspaced.Workspace) -> None:
    async with ws.exec(["bash", "--norc"], pty=(80, 24)) as process:
        await process.write(b"sleep 1000; echo status=$?\n")
        await read_until(process, b"sleep 1000")
        with anyio.fail_after(60):
            while (await ws.run("pgrep -x sleep")).exit_code != 0:
                await anyio.sleep(0.05)
        await process.write(b"\x03")
        await process.write(b"echo after=$?\n")
        await read_until(process, b"after=130")
        await process.write(b"exit\n")
        await process.wait()


async def test_ctrl_d_ends_input_and_echo_is_there(ws: workspaced.Workspace) -> None:
    async with ws.exec("cat > typed", pty=(80, 24)) as process:
        await process.write(b"hello\n")
        await read_until(process, b"hello")
        await process.close_stdin()
        assert (await process.wait()).exit_code == 0
    assert await ws.files.read("typed") == b"hello\n"


async def test_it_is_a_terminal(ws: workspaced.Workspace) -> None:
    async with ws.exec("test -t 0 && test -t 1 && test -t 2 && echo tty=$(tty) > where", pty=(80, 24)) as process:
        assert (await process.wait()).exit_code == 0
    assert (await ws.files.read("where")).startswith(b"tty=/dev/pts/")
    async with ws.exec("sleep 60", disconnect_policy="kill") as process:
        await process.resize(10, 10)  # goes with the stream: the refusal ends it
        with pytest.raises(workspaced.FailedPrecondition) as caught:
            await process.wait()
    assert caught.value.reason == "NO_PTY"

"""The `workspaced` command against a real server, on a real terminal where it matters."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import ROOT, ServerProcess, free_port
from tests.support.terminal import TerminalSession

IMAGE = "workspaced-test:bookworm"
EXAMPLE = ROOT / "examples" / "project"


@dataclass
class Cli:
    """The command, as a user of a server runs it."""

    server: ServerProcess
    made: list[str] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(ROOT / "service"), str(ROOT / "clients/python"), *sys.path])
        return dict(os.environ, WORKSPACED_SERVER=self.server.address, PYTHONPATH=path)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "workspaced_server", *arguments]

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, env=self.environment, timeout=60, check=False
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def start(self, *arguments: str, **extra: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command(*arguments), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **extra
        )

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def terminal(self, *arguments: str, cols: int = 80, rows: int = 24) -> TerminalSession:
        return TerminalSession(self.command(*arguments), env=self.environment, cols=cols, rows=rows)

    def init(self, backend: str) -> str:
        name = f"cli-{uuid.uuid4().hex[:10]}"
        image = ["--image", IMAGE] if backend == "docker" else []
        done = self.run("init", "--id", name, "--backend", backend, *image)
        assert done.stdout == f"{name}\n".encode()
        self.made.append(name)
        return name


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    server = ServerProcess(tmp_path_factory.mktemp("cli") / "state")
    server.start()
    made = Cli(server)
    yield made
    if made.made:
        made.run("rm", "--force", *made.made)
    assert server.stop() == 0


@pytest.fixture(scope="module")
def local(cli: Cli) -> str:
    return cli.init("local")


@pytest.fixture(scope="module")
def docker(cli: Cli) -> str:
    return cli.init("docker")


@pytest.fixture(params=["local", "docker"])
def workspace(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


# Programs


@pytest.mark.parametrize(
    ("arguments", "code", "stdout"),
    [
        (["--", "sh", "-c", "echo out; echo err >&2; exit 7"], 7, b"out\n"),
        (["ls", "-d", "."], 0, b".\n"),
        (["--shell", "kill -9 $$"], 137, b""),
        (["--shell", "echo before; exec sleep 100", "--timeout", "0.5s"], 124, b"before\n"),
        (["-e", "A=b c", "--", "sh", "-c", "echo $A"], 0, b"b c\n"),
        (["-i", "--", "cat"], 0, b"typed\0\xff"),
        (["--", "cat"], 0, b""),
    ],
)
def test_exec_behaves_like_the_program(cli: Cli, local: str, arguments: list[str], code: int, stdout: bytes) -> None:
    if "--timeout" in arguments:
        arguments = [*arguments[-2:], *arguments[:-2]]
    done = cli.run("exec", local, *arguments, stdin=b"typed\0\xff", code=code)
    assert done.stdout == stdout
    if code == 7:
        assert done.stderr == b"err\n"


def test_what_cannot_start(cli: Cli, local: str) -> None:
    assert b"no-such" in cli.run("exec", local, "no-such-program", code=127).stderr
    cli.run("exec", local, "--", "sh", "-c", "echo '#!/bin/sh' > script")
    cli.run("exec", local, "--", "./script", code=126)
    assert b"no-such-dir" in cli.run("exec", local, "--cwd", "no-such-dir", "true", code=127).stderr


def test_exec_as_json(cli: Cli, local: str) -> None:
    done = cli.run("exec", local, "--json", "--", "sh", "-c", "printf 'ab\\377'; exit 3", code=3)
    started, output, exited = map(json.loads, done.stdout.splitlines())
    assert started["event"] == "started"
    assert (output["stream"], output["offset"], output["data_base64"]) == ("stdout", 0, "YWL/")
    assert (exited["event"], exited["reason"], exited["exit_code"]) == ("exited", "EXITED", 3)


def test_a_cut_off_run_is_found_again(cli: Cli, workspace: str) -> None:
    cli.run("cp", str(EXAMPLE), f"{workspace}:project")
    process = cli.start("exec", workspace, "--id", "tests", "--cwd", "project", "--", "python3", "-m", "unittest", "-v")
    assert process.stderr is not None
    seen = process.stderr.read(4000)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    listed = {entry["process_id"]: entry for entry in cli.json("ps", workspace)}
    assert listed["tests"]["state"] == "RUNNING"
    so_far = cli.run("attach", workspace, "tests", "--no-follow").stderr
    assert so_far.startswith(seen)
    whole = cli.run("attach", workspace, "tests").stderr
    assert whole.startswith(so_far)
    assert re.search(rb"Ran \d{3} tests in .*\n\nOK\n$", whole)
    assert cli.run("attach", workspace, "tests", "--offset", "2000").stderr == whole[2000:]
    assert cli.run("logs", workspace, "tests").stderr == whole
    assert cli.run("logs", workspace, "tests", "--tail", "2").stderr == b"\nOK\n"


def test_attach_is_left_by_ctrl_c_and_the_process_goes_on(cli: Cli, local: str) -> None:
    name = (
        cli.run("exec", local, "--detach", "--id", "goes-on", "--", "sh", "-c", "echo up; sleep 100")
        .stdout.decode()
        .strip()
    )
    assert name == "goes-on"
    attached = cli.start("attach", local, name)
    assert attached.stdout is not None
    assert attached.stdout.readline() == b"up\n"
    attached.send_signal(signal.SIGINT)
    _, said = attached.communicate(timeout=20)
    assert attached.returncode == 0
    assert f"workspaced attach {local} goes-on --offset 3".encode() in said
    assert cli.json("inspect", local, name)["state"] == "RUNNING"
    assert cli.json("kill", local, name, "--signal", "KILL")["signaled"] >= 1
    cli.run("attach", local, name, code=137)


def test_ctrl_c_goes_to_the_program_and_a_second_one_detaches(cli: Cli, local: str) -> None:
    program = "trap 'echo caught' INT; echo up; while :; do sleep 0.05; done"
    process = cli.start("exec", local, "--id", "stubborn", "--shell", program)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"caught\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"workspaced attach" in said
    cli.run("kill", local, "stubborn", "-s", "KILL")


def test_a_closed_pipe_ends_exec_quietly(cli: Cli, local: str) -> None:
    with cli.start("exec", local, "--id", "endless", "--", "yes") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(20) == 141
    assert b"Traceback" not in said
    cli.run("kill", local, "endless", "-s", "KILL")


# A real terminal


def test_terminal_size_resize_and_exit_code(cli: Cli, docker: str) -> None:
    with cli.terminal("exec", "-it", docker, "--", "bash", "--norc", cols=91, rows=33) as terminal:
        terminal.expect("# ")
        assert terminal.raw
        terminal.type("stty size; echo $TERM\r")
        terminal.expect("33 91")
        terminal.expect("xterm")
        terminal.resize(120, 40)
        terminal.type("sleep 0.2; stty size\r")
        terminal.expect("40 120")
        terminal.type("exit 5\r")
        assert terminal.wait() == 5
        assert terminal.attributes() == terminal.settings


def test_ctrl_c_reaches_the_job_in_the_terminal(cli: Cli, docker: str) -> None:
    with cli.terminal("exec", "-it", docker, "--", "bash", "--norc") as terminal:
        terminal.expect("# ")
        terminal.type("echo go; sleep 1000\r")
        terminal.expect("go\r\n")
        terminal.type("\x03")
        terminal.type("echo status=$?\r")
        terminal.expect("status=130")
        terminal.type("exit\r")
        terminal.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_terminal_is_restored_after_a_signal(cli: Cli, docker: str, number: signal.Signals) -> None:
    with cli.terminal("exec", "-it", docker, "--", "sh", "-c", "echo up; exec cat") as terminal:
        terminal.expect("up")
        assert terminal.raw
        terminal.process.send_signal(number)
        assert terminal.wait() == 128 + number
        assert terminal.attributes() == terminal.settings


def test_the_terminal_is_restored_after_an_error(cli: Cli, local: str) -> None:
    with cli.terminal("exec", "-it", local, "--", "no-such-program") as terminal:
        assert terminal.wait() == 127
        assert terminal.attributes() == terminal.settings


def test_an_interactive_process_is_taken_up_again(cli: Cli, docker: str) -> None:
    with cli.terminal("exec", "-it", docker, "--id", "shell", "--", "bash", "--norc") as terminal:
        terminal.expect("# ")
        terminal.type("word=remembered\r")
        terminal.expect("# ")
        terminal.process.kill()
    with cli.terminal("attach", "-it", docker, "shell") as terminal:
        terminal.expect("word=remembered")
        terminal.type("echo it=$word; exit\r")
        terminal.expect("it=remembered")
        assert terminal.wait() == 0


def test_vim_edits_a_file(cli: Cli, docker: str) -> None:
    with cli.terminal("exec", "-it", docker, "--", "vi", "written.txt") as terminal:
        terminal.expect("written.txt")
        terminal.type("ifirst line\rsecond\x1b")
        terminal.expect("second")
        terminal.type(":s/second/changed/\r")
        terminal.expect("changed")
        terminal.type(":wq\r")
        assert terminal.wait() == 0
        assert terminal.attributes() == terminal.settings
    assert cli.run("exec", docker, "cat", "written.txt").stdout == b"first line\nchanged\n"


def test_top_and_less_draw_and_leave(cli: Cli, docker: str) -> None:
    with cli.terminal("exec", "-it", docker, "--", "top", cols=100, rows=30) as terminal:
        terminal.expect("load average")
        terminal.expect("PID")
        terminal.resize(60, 20)
        terminal.expect("PID")
        terminal.type("q")
        assert terminal.wait() == 0
    cli.run("exec", docker, "--shell", "seq -f 'line %g' 500 > lines")
    with cli.terminal("exec", "-it", docker, "--", "less", "lines") as terminal:
        terminal.expect("line 23")
        terminal.type("G")
        terminal.expect("line 500")
        terminal.type("?line 77$\r")
        terminal.expect("\x1b[7mline 77\x1b[27m")  # found, and highlighted
        terminal.type("q")
        assert terminal.wait() == 0


# Files


def test_a_tree_there_and_back(cli: Cli, workspace: str, tmp_path: Path) -> None:
    source = tmp_path / "tree"
    (source / "sub" / "empty").mkdir(parents=True)
    for number in range(400):
        (source / "sub" / f"file-{number}").write_bytes(os.urandom(number * 10))
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o750)
    (source / "ünïcode name").write_text("x")
    (source / "link").symlink_to("sub/file-7")
    (source / "dangling").symlink_to("nowhere")
    name = f"tree-{uuid.uuid4().hex[:6]}"
    started = time.monotonic()
    cli.run("cp", str(source), f"{workspace}:{name}")
    assert cli.json("cp", f"{workspace}:{name}", str(tmp_path / "back"))["files"] == 404
    assert time.monotonic() - started < 10
    back = tmp_path / "back"
    for path in source.rglob("*"):
        copy = back / path.relative_to(source)
        assert copy.is_symlink() == path.is_symlink()
        if path.is_symlink():
            assert copy.readlink() == path.readlink()
        elif path.is_file():
            assert copy.read_bytes() == path.read_bytes()
            assert copy.stat().st_mode == path.stat().st_mode
    assert (back / "sub" / "empty").is_dir()
    assert cli.run("exec", workspace, f"{name}/run.sh").stdout == b"ran\n"
    (source / "run.sh").write_text("#!/bin/sh\necho again\n")
    cli.run("cp", str(source), f"{workspace}:{name}")
    assert cli.run("exec", workspace, f"{name}/run.sh").stdout == b"again\n"


def test_single_files_and_standard_streams(cli: Cli, workspace: str, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "data.bin").write_bytes(data)
    cli.run("cp", str(tmp_path / "data.bin"), f"{workspace}:dir/")
    cli.run("cp", f"{workspace}:dir/data.bin", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == data
    cli.run("cp", f"{workspace}:dir/data.bin", f"{tmp_path}/into/")
    assert (tmp_path / "into" / "data.bin").read_bytes() == data
    assert cli.run("cp", f"{workspace}:dir/data.bin", "-").stdout == data
    cli.run("cp", "-", f"{workspace}:typed", stdin=b"a\0b")
    assert cli.run("exec", workspace, "cat", "typed").stdout == b"a\0b"


def test_what_leads_out_is_not_copied(cli: Cli, docker: str, tmp_path: Path) -> None:
    cli.run(
        "exec", docker, "--shell", "mkdir -p evil; cd evil; ln -s /etc etc; ln -s ../.. up; mkfifo pipe; echo 1 > good"
    )
    done = cli.run("cp", f"{docker}:evil", str(tmp_path / "got"), code=1)
    assert sorted(path.name for path in (tmp_path / "got").iterdir()) == ["good"]
    for word in (b"etc", b"up", b"pipe", b"3 entries"):
        assert word in done.stderr


def test_copy_shows_its_progress(cli: Cli, local: str, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(30_000_000))
    with cli.terminal("cp", str(tmp_path / "big"), f"{local}:big", cols=100) as terminal:
        assert terminal.wait(40) == 0
        assert b"28.6" in terminal.output
        assert b"Copied 1 file" in terminal.output


def test_missing_files_are_told(cli: Cli, local: str, tmp_path: Path) -> None:
    assert b"no-such" in cli.run("cp", str(tmp_path / "no-such"), f"{local}:", code=4).stderr
    assert b"no-such" in cli.run("cp", f"{local}:no-such", str(tmp_path / "x"), code=4).stderr
    assert not (tmp_path / "x").exists()
    cli.run("cp", str(tmp_path), str(tmp_path), code=2)


# Ports


def test_forward(cli: Cli, docker: str) -> None:
    server = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8123, bind='127.0.0.1')"
    cli.run("exec", docker, "--id", "web", "--detach", "--", "python3", "-uc", server)
    watched = cli.start("logs", "-f", docker, "web")
    assert watched.stdout is not None
    assert b"Serving" in watched.stdout.readline()
    watched.terminate()
    watched.communicate()
    forwarding = cli.start("forward", docker, ":8123", "--json")
    assert forwarding.stdout is not None
    port = json.loads(forwarding.stdout.readline())["port"]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert connection.recv(15).startswith(b"HTTP/1.0 200")
    forwarding.send_signal(signal.SIGINT)
    forwarding.communicate(timeout=20)
    assert forwarding.returncode == 0
    cli.run("kill", docker, "web", "-s", "KILL")


# Workspaces


def test_a_workspace_from_init_to_rm(cli: Cli) -> None:
    done = cli.run("init", "--backend", "local", "-l", "suite=cli", "-e", "A=1", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    name = events[-1]["workspace"]["workspace_id"]
    assert events[-1]["event"] == "ready"
    assert [entry["workspace_id"] for entry in cli.json("ls", "-l", "suite=cli")] == [name]
    assert cli.run("ls", "-q", "--label", "suite=cli").stdout.decode().split() == [name]
    assert cli.run("exec", name, "--shell", "echo $A").stdout == b"1\n"
    table = cli.run("ls", "-l", "suite=cli").stdout.decode().splitlines()
    assert table[0].split() == ["ID", "STATE", "BACKEND", "IMAGE", "AGE", "USED", "LABELS"]
    assert table[1].split()[:3] == [name, "READY", "local"]
    assert b"state: READY" in cli.run("inspect", name).stdout
    assert cli.json("reset", name)["state"] == "READY"
    assert cli.json("close", name)["state"] == "CLOSED"
    assert b"workspaced init --id" in cli.run("exec", name, "true", code=1).stderr
    assert cli.run("init", "--id", name).stdout.decode().strip() == name
    cli.run("init", "--id", name, "-e", "A=2", "--backend", "local", code=1)
    cli.run("rm", name)
    error = json.loads(cli.run("--json", "rm", name, code=4).stderr)["error"]
    assert (error["reason"], error["exit_code"]) == ("WORKSPACE_NOT_FOUND", 4)
    cli.run("rm", "--force", name)


def test_init_shows_phases(cli: Cli) -> None:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    cli.made.append(name)
    with cli.terminal("init", "--id", name, "--backend", "docker", "--image", IMAGE) as terminal:
        assert terminal.wait(60) == 0
        assert b"sandbox" in terminal.output
        assert terminal.output.rstrip().endswith(name.encode())


# The installation


def test_doctor(cli: Cli, tmp_path: Path) -> None:
    report = cli.json("doctor", "--state-dir", str(tmp_path / "state"))
    found = {item["name"]: item["status"] for item in report["findings"]}
    assert report["ok"]
    assert found["server"] == found["backend docker"] == found["backend local"] == found["docker engine"] == "ok"
    broken = cli.json("--server", f"127.0.0.1:{free_port()}", "doctor", code=1)
    assert {item["name"]: item["status"] for item in broken["findings"]}["server"] == "failed"
    bad = tmp_path / "bad.toml"
    bad.write_text("listen = 'x'\n")
    broken = cli.json("--server", f"127.0.0.1:{free_port()}", "doctor", "--config", str(bad), code=1)
    assert any("listen" in item["detail"] for item in broken["findings"])


def test_no_server_is_told_in_one_line(cli: Cli) -> None:
    done = cli.run("ls", "--server", f"127.0.0.1:{free_port()}", code=3)
    assert done.stdout == b""
    assert done.stderr.count(b"\n") == 1
    assert b"workspaced serve" in done.stderr


def test_tokens(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token = cli.run("token", "new", "alice", "--scope", "read,execute", "--file", str(file)).stdout.decode().strip()
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    server = ServerProcess(tmp_path / "state", config=f"[auth]\ntoken_file = {str(file)!r}\n")
    server.start()
    try:
        mine = Cli(server)
        mine.run("ls", code=5)
        mine.run("ls", "--token", token)
        (tmp_path / "token").write_text(token + "\n")
        mine.run("--token-file", str(tmp_path / "token"), "ls")
        mine.run("init", "--backend", "local", "--token", token, code=5)
        assert cli.json("token", "ls", "--token-file", str(file)) == [{"name": "alice", "scopes": ["read", "execute"]}]
        cli.run("token", "rm", "alice", "--file", str(file))
        cli.run("token", "rm", "alice", "--file", str(file), code=4)
    finally:
        assert server.stop() == 0


def test_serve_check(cli: Cli, tmp_path: Path) -> None:
    config = tmp_path / "workspaced.toml"
    config.write_text("drain_seconds = 3\n")
    checked = cli.json("serve", "--check", "--config", str(config), "--state-dir", str(tmp_path / "s"))
    assert (checked["drain_seconds"], checked["state_dir"]) == (3.0, str(tmp_path / "s"))
    assert b"--insecure" in cli.run("serve", "--check", "--listen", "0.0.0.0:7420", code=2).stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(cli: Cli, local: str, shell: str) -> None:
    script = cli.run("completion", shell).stdout
    assert b"_WORKSPACED_COMPLETE" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, check=True)
        environment = {"_WORKSPACED_COMPLETE": "bash_complete", "COMP_WORDS": "workspaced exec cli-", "COMP_CWORD": "2"}
        done = subprocess.run(
            cli.command(), env={**cli.environment, **environment}, capture_output=True, timeout=30, check=False
        )
        assert f"plain,{local}" in done.stdout.decode().split()

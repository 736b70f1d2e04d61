"""Rules on request heads: what is refused, and that every request with a rule has one."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from workspaced.v1 import execution_pb2 as execution_pb
from workspaced.v1 import file_pb2 as file_pb
from workspaced.v1 import port_pb2 as port_pb
from workspaced.v1 import process_pb2
from workspaced_server.api.validation import _RULES, check, page_size, signal_name
from workspaced_server.errors import Code, WorkspacedError

SHELL = process_pb2.ProcessSpec(shell_command="true")


def spec(**fields: object) -> execution_pb.RunProcessRequest:
    wanted = process_pb2.ProcessSpec(**fields)  # type: ignore[arg-type]
    if not wanted.WhichOneof("command"):
        wanted.shell_command = "true"
    return execution_pb.RunProcessRequest(spec=wanted)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (execution_pb.RunProcessRequest(), "spec"),
        (execution_pb.RunProcessRequest(spec=SHELL, process_id="-x"), "process_id"),
        (execution_pb.RunProcessRequest(spec=SHELL, process_id="x" * 129), "process_id"),
        (execution_pb.RunProcessRequest(spec=SHELL, process_id="x\n"), "process_id"),
        (execution_pb.RunProcessRequest(spec=SHELL, stdin=bytes((1 << 20) + 1)), "stdin"),
        (execution_pb.RunProcessRequest(spec=SHELL, max_output_bytes=(1 << 20) + 1), "max_output_bytes"),
        (spec(argv=process_pb2.Argv()), "spec.argv.args"),
        (spec(argv=process_pb2.Argv(args=[""])), "spec.argv.args"),
        (spec(argv=process_pb2.Argv(args=["a", "b\0"])), "spec.argv.args"),
        (spec(shell_command=""), "spec.shell_command"),
        (spec(shell_command="a\0b"), "spec.shell_command"),
        (spec(cwd="a\0"), "spec.cwd"),
        (spec(cwd="é" * 2049), "spec.cwd"),
        (spec(env={"A=B": "c"}), "spec.env"),
        (spec(env={"": "c"}), "spec.env"),
        (spec(env={"A": "\0"}), "spec.env['A']"),
        (spec(user="\0"), "spec.user"),
        (spec(pty=process_pb2.PtySize(cols=80)), "spec.pty.rows"),
        (spec(pty=process_pb2.PtySize(cols=10_001, rows=1)), "spec.pty.cols"),
        (spec(timeout=Duration()), "spec.timeout"),
        (spec(timeout=Duration(seconds=-1)), "spec.timeout"),
        (spec(timeout=Duration(seconds=1 << 40)), "spec.timeout"),
        (spec(kill_grace=Duration(nanos=-1)), "spec.kill_grace"),
        (spec(kill_grace=Duration(nanos=2_000_000_000)), "spec.kill_grace"),
        (spec(disconnect_policy=99), "spec.disconnect_policy"),
        (spec(overflow_policy=99), "spec.overflow_policy"),
        (spec(stdin=99), "spec.stdin"),
        (spec(journal_limit_bytes=1), "spec.journal_limit_bytes"),
        (spec(journal_limit_bytes=(16 << 30) + 1), "spec.journal_limit_bytes"),
        (spec(nice=-1), "spec.nice"),
        (spec(nice=20), "spec.nice"),
        (execution_pb.ExecStart(), "spec"),
        (execution_pb.ExecAttach(), "process_id"),
        (execution_pb.AttachProcessRequest(), "process_id"),
        (execution_pb.GetProcessRequest(process_id="a/b"), "process_id"),
        (execution_pb.WaitProcessRequest(process_id="a", timeout=Duration(seconds=-1)), "timeout"),
        (execution_pb.WriteStdinRequest(process_id="a", data=bytes((1 << 20) + 1)), "data"),
        (execution_pb.SignalProcessRequest(process_id="a", signal="SIGSIGTERM"), "signal"),
        (execution_pb.SignalProcessRequest(process_id="a", signal="9"), "signal"),
        (execution_pb.SignalProcessRequest(process_id="a", signal="TERM", scope=9), "scope"),  # type: ignore[arg-type]
        (execution_pb.ListProcessesRequest(page_size=-1), "page_size"),
        (execution_pb.ListProcessesRequest(state=9), "state"),  # type: ignore[arg-type]
        (file_pb.ReadFileRequest(), "path"),
        (file_pb.StatFileRequest(path="\0"), "path"),
        (file_pb.WatchFilesRequest(), "path"),
        (file_pb.ListFilesRequest(page_token="x" * 8193), "page_token"),
        (file_pb.ListFilesRequest(glob="\0"), "glob"),
        (file_pb.MakeDirectoryRequest(path="a", mode=1 << 20), "mode"),
        (file_pb.MoveFileRequest(source="a"), "destination"),
        (file_pb.CopyFileRequest(destination="a"), "source"),
        (file_pb.RemoveFileRequest(path="a", if_match="xyz"), "if_match"),
        (file_pb.WriteFileHeader(path="a", create_only=True, if_match="0" * 64), "if_match"),
        (file_pb.WriteFileHeader(path="a", query_offset=True), "query_offset"),
        (file_pb.WriteFileHeader(path="a", upload_id="u" * 257), "upload_id"),
        (port_pb.TunnelOpen(), "port"),
        (port_pb.TunnelOpen(port=80, host="x" * 256), "host"),
        (port_pb.ListPortsRequest(page_size=-1), "page_size"),
    ],
)
def test_a_broken_rule_names_the_field(request_: Message, field: str) -> None:
    with pytest.raises(WorkspacedError) as caught:
        check(request_)
    assert (caught.value.code, caught.value.reason) == (Code.INVALID_ARGUMENT, "ARGUMENT_INVALID")
    assert [violation.field for violation in caught.value.violations] == [field]
    assert all(violation.description for violation in caught.value.violations)


def test_all_violations_are_told_at_once() -> None:
    with pytest.raises(WorkspacedError) as caught:
        check(spec(nice=20, journal_limit_bytes=1, cwd="\0"))
    assert len(caught.value.violations) == 3


@pytest.mark.parametrize(
    "request_",
    [
        spec(env={"A": "", "ä": "ü"}, cwd="/", nice=19, kill_grace=Duration(), journal_limit_bytes=1 << 16),
        execution_pb.SignalProcessRequest(process_id="A.b_c-9", signal="sigterm"),
        file_pb.ListFilesRequest(),
        file_pb.WriteFileHeader(path="用户", mode=0o7777, sha256="AB" * 32),
    ],
)
def test_what_is_allowed(request_: Message) -> None:
    check(request_)


def test_every_request_about_a_workspace_has_a_rule() -> None:
    for file in (execution_pb.DESCRIPTOR, file_pb.DESCRIPTOR, port_pb.DESCRIPTOR):
        for name, message in file.message_types_by_name.items():
            if "workspace_id" in message.fields_by_name:
                assert name in _RULES


def test_signal_names_and_page_sizes() -> None:
    assert {signal_name(name) for name in ("TERM", "SIGTERM", "term", "sigterm")} == {"TERM"}
    assert [page_size(n) for n in (0, 1, 1000, 1001)] == [100, 1, 1000, 1000]

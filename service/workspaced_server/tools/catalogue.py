"""The built-in tools as a model is told of them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

from workspaced.v1 import tool_pb2
from workspaced_server.tools.values import struct_of

BUILTIN: Final = "BUILTIN"

_FILE_PATH: Final = {
    "type": "string",
    "minLength": 1,
    "description": "Path of the file: absolute, or relative to the workspace's directory.",
}
_DIRECTORY: Final = {
    "type": "string",
    "minLength": 1,
    "description": "Where to look: absolute, or relative to the workspace's directory, which is the default.",
}
_INCLUDE_IGNORED: Final = {
    "type": "boolean",
    "default": False,
    "description": "Also look at what .gitignore names and into .git.",
}


@dataclass(frozen=True, slots=True)
class Builtin:
    """A built-in tool. ``properties`` is the JSON Schema of each input."""

    name: str
    title: str
    description: str
    properties: dict[str, Any]
    required: tuple[str, ...]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    output: dict[str, Any] | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the input."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.required),
            "additionalProperties": False,
        }

    def message(self) -> tool_pb2.Tool:
        """What ListTools says of it; the same object each time, not to be changed."""
        found = _messages.get(self.name)
        if found is None:
            found = _messages[self.name] = self._message()
        return found

    def _message(self) -> tool_pb2.Tool:
        tool = tool_pb2.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=struct_of(self.schema),
            source=BUILTIN,
            kind=tool_pb2.TOOL_KIND_BUILTIN,
            original_name=self.name,
            read_only=self.read_only,
            destructive=self.destructive,
            idempotent=self.idempotent,
            open_world=self.open_world,
        )
        if self.output is not None:
            tool.output_schema.CopyFrom(struct_of(self.output))
        return tool


_messages: dict[str, tool_pb2.Tool] = {}

BUILTINS: Final = (
    Builtin(
        name="Bash",
        title="Run a command",
        description=(
            "Runs a command line in a shell of its own, bash where there is one, in the workspace's directory, and"
            " returns its output with stdout and stderr in the order in which they were written, and the exit code.\n"
            "- Directory and variables that a command sets are gone in the next call: use absolute paths, or chain"
            " with &&.\n"
            "- There is no terminal and no standard input: use flags that make programs ask nothing.\n"
            "- A command is stopped after `timeout` seconds, 120 by default. Run servers and long jobs with"
            " run_in_background; the answer then tells at once how to read the output and how to stop it.\n"
            "- Of long output the middle is left out. Prefer Read, Grep and Glob to cat, grep and find."
        ),
        properties={
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": 100_000,
                "description": "The command line.",
            },
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "maximum": 600,
                "description": "Seconds after which the command is stopped. Default: 120; in the background: never.",
            },
            "run_in_background": {
                "type": "boolean",
                "default": False,
                "description": "Return at once and let the command run on.",
            },
            "description": {
                "type": "string",
                "description": "What the command does, in a few words, for people who watch.",
            },
        },
        required=("command",),
        destructive=True,
        open_world=True,
        output={
            "type": "object",
            "properties": {
                "exit_code": {"type": ["integer", "null"]},
                "signal": {"type": ["string", "null"]},
                "timed_out": {"type": "boolean"},
                "truncated": {"type": "boolean"},
                "process_id": {"type": "string"},
            },
            "required": ["exit_code", "signal", "timed_out", "truncated", "process_id"],
        },
    ),
    Builtin(
        name="Read",
        title="Read a file",
        description=(
            "Reads a text file and returns its lines, numbered from 1, as `number<tab>text`. The number and the tab are"
            " no part of the file.\n"
            "- Up to 2,000 lines at a time; go on with `offset`. A negative offset reads from the end: -100 is the"
            " last 100 lines.\n"
            "- Lines longer than 2,000 bytes are cut.\n"
            "- PNG, JPEG, GIF and WebP images are returned as images.\n"
            "- `process:///ID` is the output of a command that runs in the background."
        ),
        properties={
            "file_path": _FILE_PATH,
            "offset": {
                "type": "integer",
                "minimum": -10_000,
                "maximum": 1 << 53,
                "default": 1,
                "description": "Number of the first line; negative counts from the end.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 10_000,
                "default": 2000,
                "description": "Greatest number of lines.",
            },
        },
        required=("file_path",),
        read_only=True,
        idempotent=True,
    ),
    Builtin(
        name="Write",
        title="Write a file",
        description=(
            "Writes a file as a whole, replacing what was there; missing directories are made. To change a part of a"
            " file, use Edit."
        ),
        properties={
            "file_path": _FILE_PATH,
            "content": {"type": "string", "description": "The whole content."},
        },
        required=("file_path", "content"),
        destructive=True,
        idempotent=True,
    ),
    Builtin(
        name="Edit",
        title="Edit a file",
        description=(
            "Replaces text in a file. Read the file first: an edit is refused when the file is not what you last read"
            " or wrote.\n"
            "- old_string must be in the file exactly, with its white space and without the line numbers of Read, and"
            " only once: add lines around it to make it unique, or set replace_all.\n"
            "- Line ends are matched and kept whatever they are; write them as \\n.\n"
            "- Everything else in the file stays as it is, byte for byte."
        ),
        properties={
            "file_path": _FILE_PATH,
            "old_string": {"type": "string", "minLength": 1, "description": "The text to replace."},
            "new_string": {"type": "string", "description": "What to put in its place; may be empty."},
            "replace_all": {
                "type": "boolean",
                "default": False,
                "description": "Replace it wherever it is.",
            },
        },
        required=("file_path", "old_string", "new_string"),
        destructive=True,
    ),
    Builtin(
        name="Glob",
        title="Find files by name",
        description=(
            "Finds files by a pattern on their paths; the newest by modification time come first.\n"
            "- `*` and `?` stay within a name, `**` is any number of directories, `{a,b}` is either:"
            " `*.py` looks at one directory, `**/*.{ts,tsx}` at all below.\n"
            "- What .gitignore names is left out, links are not followed."
        ),
        properties={
            "pattern": {"type": "string", "minLength": 1, "maxLength": 1024, "description": "The pattern."},
            "path": _DIRECTORY,
            "head_limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 10_000,
                "default": 250,
                "description": "Greatest number of files.",
            },
            "include_ignored": _INCLUDE_IGNORED,
        },
        required=("pattern",),
        read_only=True,
        idempotent=True,
    ),
    Builtin(
        name="Grep",
        title="Search in files",
        description=(
            "Searches the lines of files for a regular expression (the syntax of Python's re); answers are sorted by"
            " path.\n"
            "- output_mode `files_with_matches`, the default, gives paths; `content` gives `path:line:text`, and lines"
            " around a match as `path-line-text`; `count` gives `path:number of matching lines`.\n"
            "- What .gitignore names and binary files are left out, links are not followed.\n"
            "- With multiline a match may span lines, and `.` is a line end too."
        ),
        properties={
            "pattern": {
                "type": "string",
                "minLength": 1,
                "maxLength": 8192,
                "description": "The regular expression.",
            },
            "path": {**_DIRECTORY, "description": f"{_DIRECTORY['description']} A file is searched alone."},
            "glob": {
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "description": "Only files whose path below `path` matches; without a slash the name: `*.{js,ts}`.",
            },
            "output_mode": {
                "type": "string",
                "enum": ["files_with_matches", "content", "count"],
                "default": "files_with_matches",
                "description": "What to return.",
            },
            "ignore_case": {"type": "boolean", "default": False, "description": "Upper and lower case are the same."},
            "multiline": {"type": "boolean", "default": False, "description": "Let matches span lines."},
            "before": {
                "type": "integer",
                "minimum": 0,
                "maximum": 100,
                "default": 0,
                "description": "Lines to show before a match (content).",
            },
            "after": {
                "type": "integer",
                "minimum": 0,
                "maximum": 100,
                "default": 0,
                "description": "Lines to show after a match (content).",
            },
            "context": {
                "type": "integer",
                "minimum": 0,
                "maximum": 100,
                "default": 0,
                "description": "Lines to show before and after a match (content).",
            },
            "head_limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 10_000,
                "default": 250,
                "description": "Greatest number of files, or of matching lines (content).",
            },
            "include_ignored": _INCLUDE_IGNORED,
        },
        required=("pattern",),
        read_only=True,
        idempotent=True,
    ),
    Builtin(
        name="Skill",
        title="Read a skill",
        description=(
            "Returns the instructions of a skill by its name, and the paths of its files. The names and what each skill"
            " is for are in the system prompt."
        ),
        properties={"skill": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Name of the skill."}},
        required=("skill",),
        read_only=True,
        idempotent=True,
    ),
)


@functools.cache
def by_name() -> dict[str, Builtin]:
    """The built-in tools by name."""
    return {tool.name: tool for tool in BUILTINS}

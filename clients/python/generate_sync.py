#!/usr/bin/env python3
"""Writes ``workspaced/sync`` from the asynchronous modules: ``python clients/python/generate_sync.py [--check]``.

Each public class becomes one that holds its asynchronous twin: coroutines are run by the portal, context managers and
iterators lose their ``a``, and what a method returns is wrapped when it has a synchronous twin itself.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parent / "workspaced"
MODULES = {
    "client": ["Client"],
    "files": ["Files"],
    "lease": ["LeasedWorkspace"],
    "mcps": ["Mcps"],
    "offload": ["Offload"],
    "process": ["Process"],
    "skills": ["Skills"],
    "stream": ["Stream"],
    "tools": ["Tools"],
    "tunnel": ["Tunnel", "Forward"],
    "workspace": ["Workspace"],
}
TWINS = {name: module for module, names in MODULES.items() for name in names}
AWAITED = {"Acquisition": "LeasedWorkspace"}
"""What is awaited or entered becomes, without ``await``, what it gives; that is a context manager itself."""
RENAMED = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
}
HEADER = """\
\"\"\"Written by generate_sync.py from workspaced.{module}; do not edit.\"\"\"

from __future__ import annotations

"""


def imports(tree: ast.Module, module: str) -> list[str]:
    """The module's own imports, seen from the package below; twins come from their synchronous module."""
    lines = ["import contextlib"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            lines.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                if alias.name in TWINS:
                    continue
                name = alias.name + (f" as {alias.asname}" if alias.asname else "")
                if alias.name == "Self":
                    continue
                source = ".".join(filter(None, ["workspaced" if node.level else "", node.module]))
                lines.append(f"from {source} import {name}")
    own = [name for node in tree.body for name in defined(node)]
    skipped = {*TWINS, "connect", "T"}
    lines += [f"from workspaced.{module} import {name}" for name in own if name not in skipped and name[0] != "_"]
    lines += [f"from .{home} import {name}" for name, home in TWINS.items() if home != module]
    lines += [
        f"from workspaced import {module} as twin",
        "from .portal import awaited, call",
        "from typing import TYPE_CHECKING",
    ]
    lines += ["if TYPE_CHECKING:", "    from typing_extensions import Self"]
    return lines


def defined(node: ast.stmt) -> list[str]:
    """Names that a top-level statement defines."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else []


def docstring(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: int) -> list[str]:
    """Its docstring, in the words of the synchronous face."""
    text = ast.get_docstring(node, clean=False)
    if text is None:
        return []
    text = text.replace("async with ", "with ").replace("async for ", "for ").replace("await ", "")
    text = text.replace("An async iterator", "An iterator").replace("an async context manager", "a context manager")
    text = text.replace("aclose", "close").replace("Belongs to the event loop that first uses it.", "")
    text = text.replace("workspaced.connect", "workspaced.sync.connect")
    return [" " * indent + '"""' + text.rstrip() + ('"""' if "\n" not in text else "\n" + " " * indent + '"""')]


def arguments(args: ast.arguments) -> str:
    """How the twin's method is called with the same arguments."""
    given = [arg.arg for arg in (*args.posonlyargs, *args.args)][1:]
    return ", ".join([*given, *(f"{arg.arg}={arg.arg}" for arg in args.kwonlyargs)])


def wrap(expression: str, returns: str) -> str:
    """The expression, wrapped when it has a synchronous twin."""
    name = returns.split("[")[0]
    return f"{name}({expression})" if name in TWINS else expression


def method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """One method of the synchronous face."""
    name = RENAMED.get(node.name, node.name)
    returns = ast.unparse(node.returns) if node.returns else "None"
    head = f"    def {name}({ast.unparse(node.args)}) -> {returns}:"
    lines = [head, *docstring(node, 8)]
    if any(isinstance(item, ast.Name) and item.id == "property" for item in node.decorator_list):
        return ["    @property", *lines, f"        return self._twin.{node.name}", ""]
    invoke = f"self._twin.{node.name}({arguments(node.args)})"
    if returns in AWAITED:
        head = f"    def {name}({ast.unparse(node.args)}) -> {AWAITED[returns]}:"
        return [head, *docstring(node, 8), f"        return {AWAITED[returns]}(call(awaited({invoke})))", ""]
    if node.name == "__aiter__":
        return [*lines, "        return self", ""]
    if node.name == "__aenter__":
        return [*lines, f"        call({invoke})", "        return self", ""]
    if node.name == "__anext__":
        return [
            *lines,
            "        with contextlib.suppress(StopAsyncIteration):",
            f"            return call({invoke})",
            "        raise StopIteration",
            "",
        ]
    if isinstance(node, ast.AsyncFunctionDef):
        invoke = f"call({invoke})"
    if returns == "None":
        return [*lines, f"        {invoke}", ""]
    return [*lines, f"        return {wrap(invoke, returns)}", ""]


def attributes(init: ast.FunctionDef) -> list[str]:
    """Properties for the public attributes that the twin's constructor sets from its parameters, or to another twin."""
    types = {arg.arg: ast.unparse(arg.annotation) for arg in init.args.args if arg.annotation}
    lines: list[str] = []
    for node in init.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Attribute):
            continue
        name, value = node.targets[0].attr, node.value
        if name.startswith("_"):
            continue
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            kind = value.func.id
        else:
            kind = types[value.id] if isinstance(value, ast.Name) else ""
        lines += [
            "    @property",
            f"    def {name}(self) -> {kind}:",
            '        """As in the asynchronous face."""',
            f"        return {wrap(f'self._twin.{name}', kind)}",
            "",
        ]
    return lines


def public(name: str) -> bool:
    """Whether a method belongs to the synchronous face."""
    return name in RENAMED or name == "__repr__" or not name.startswith("_")


def face(node: ast.ClassDef) -> list[str]:
    """One class."""
    generic = "[T]" if node.bases and ast.unparse(node.bases[0]) not in TWINS else ""
    bases = f"({ast.unparse(node.bases[0])})" if node.bases else ""
    lines = [f"class {node.name}{bases}:", *docstring(node, 4), ""]
    lines += [f"    def __init__(self, asynchronous: twin.{node.name}{generic}) -> None:"]
    declared = f": twin.{node.name}" if bases and not generic else ""  # narrower than the base's
    lines += [f"        self._twin{declared} = asynchronous", ""]
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            lines += attributes(item)
        elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and public(item.name):
            lines += method(item)
    return lines


def generate(module: str) -> str:
    """The text of one synchronous module."""
    tree = ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))
    body = [*imports(tree, module), ""]
    for node in tree.body:
        if isinstance(node, ast.Assign) and defined(node) == ["T"]:
            body += [ast.unparse(node), ""]
        elif isinstance(node, ast.FunctionDef) and node.name == "connect":
            given = ", ".join(
                [arg.arg for arg in node.args.args] + [f"{arg.arg}={arg.arg}" for arg in node.args.kwonlyargs]
            )
            body += [f"def connect({ast.unparse(node.args)}) -> Client:", *docstring(node, 4)]
            body += [f"    return Client(twin.connect({given}))", ""]
        elif isinstance(node, ast.ClassDef) and node.name in TWINS:
            body += face(node)
    text = HEADER.format(module=module) + "\n".join(body)
    ruff = [sys.executable, "-m", "ruff"]
    name = str(PACKAGE / "sync" / f"{module}.py")
    fixed = subprocess.run(
        [*ruff, "check", "--quiet", "--fix-only", "--select", "F401,F811,I,TC005", "--stdin-filename", name, "-"],
        input=text, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    return subprocess.run(
        [*ruff, "format", "--quiet", "--stdin-filename", name, "-"],
        input=fixed, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip


def main() -> int:
    """Write the modules, or with ``--check`` say which are not what would be written."""
    stale = []
    for module in MODULES:
        path = PACKAGE / "sync" / f"{module}.py"
        text = generate(module)
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    if "--check" in sys.argv and stale:
        sys.stderr.write(f"not up to date: {', '.join(stale)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

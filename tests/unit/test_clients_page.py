"""The table of equivalents names what there is: each call of docs/clients.md exists in the library of its column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"
COLUMNS = ("Python", "Go", "TypeScript")
SOURCES = {
    "Python": [CLIENTS / "python" / "workspaced", "*.py"],
    "Go": [CLIENTS / "go", "*.go"],
    "TypeScript": [CLIENTS / "typescript" / "src", "*.ts"],
}
DEFINED = {
    "Python": r"\bdef {0}\b|\b{0}\b *[:=]|\bclass {0}\b",
    "Go": r"\bfunc (?:\([^)]*\) )?{0}\b|^\s+{0}(?:, \w+)* +[\w*\[]|\b{0} +=|Stdout, {0}\b|type {0}\b",
    "TypeScript": r"\b{0}\s*[(<]|\bget {0}\b|\b{0}\??:|\bclass {0}\b",
}


def names() -> Iterator[tuple[str, str]]:
    """(language, name) of everything that a cell of the table calls or reads."""
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    table = page.partition("## Equivalents")[2].partition("\n## ")[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4:
            continue
        for language, cell in zip(COLUMNS, cells[1:], strict=True):
            for code in re.findall(r"`([^`]+)`", cell):
                for name in re.findall(r"(?:\.|\b)([A-Za-z_]\w+)\(|[a-z)]\.([A-Za-z_]\w+)\b", code):
                    yield language, name[0] or name[1]


@pytest.mark.parametrize(("language", "name"), sorted(set(names())))
def test_it_exists(language: str, name: str) -> None:
    directory, pattern = SOURCES[language]
    assert isinstance(directory, Path)
    defined = re.compile(DEFINED[language].format(re.escape(name)), re.MULTILINE)
    assert any(defined.search(path.read_text(encoding="utf-8")) for path in directory.glob(str(pattern)))

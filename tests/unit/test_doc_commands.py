"""The extractor of the documentation's commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_commands import MalformedBlock, extract


def page(directory: Path, text: str) -> Path:
    path = directory / "page.md"
    path.write_text(text)
    return path


def test_blocks_keep_their_text_and_tell_what_to_do_with_them(tmp_path: Path) -> None:
    path = page(
        tmp_path,
        "Text.\n\n```bash name=start background\nmake serve\n```\n\n"
        "1. a list\n\n   ```bash\n   workspaced ls \\\n     --json   # all\n   # comment\n   ```\n\n"
        '```bash norun="needs a cluster"\nmake deploy\n```\n```console\n$ make no\n```\n```python\n```\n',
    )
    start, ls, deploy = extract(path)
    assert (start.name, start.background, start.commands, start.line) == ("start", True, ("make serve",), 3)
    assert ls.text == "workspaced ls \\\n  --json   # all\n# comment\n"
    assert ls.commands == ("workspaced ls   --json   # all",)
    assert ls.where == "page.md:9"
    assert deploy.norun == "needs a cluster"


def test_here_documents_are_not_commands(tmp_path: Path) -> None:
    path = page(tmp_path, "```bash\ncat > config.toml <<'END'\nmake believe\nEND\nmake serve\n```\n")
    assert extract(path)[0].commands == ("cat > config.toml <<'END'", "make serve")


def test_a_longer_fence_holds_a_shorter_one(tmp_path: Path) -> None:
    path = page(tmp_path, "````markdown\n```bash\nmake no\n```\n````\n~~~bash\nmake yes\n~~~\n")
    assert [block.commands for block in extract(path)] == [("make yes",)]


@pytest.mark.parametrize(
    "text", ["```bash\nmake\n", "```bash quickly\n```\n", "```bash norun=\n```\n", "```bash x=1\n```\n"]
)
def test_a_block_that_cannot_be_understood_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(MalformedBlock):
        extract(page(tmp_path, text))

"""The documentation names files that exist, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "src/**/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
BASES = (ROOT, ROOT / "src", ROOT / "src/apportion", ROOT / "src/pocketkube")
FOLDERS = {entry.name for base in BASES for entry in base.iterdir() if entry.is_dir()}
PATH = re.compile(r"`([a-z_.]+(?:/[\w.*-]+)+)/?`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_links_of_a_page_exist(page: Path) -> None:
    text = page.read_text()
    named = {found for found in PATH.findall(text) if found.split("/")[0] in FOLDERS}
    missing = {found for found in named if not _exists(found, page)}
    missing |= {found for found in LINK.findall(text) if not (page.parent / found).exists()}
    assert not missing


def test_decisions_are_all_in_their_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    folder = ROOT / "docs/decisions"
    pages = {str(path.relative_to(folder)) for path in folder.rglob("0*.md")}
    assert set(re.findall(r"\(((?:[a-z]+/)?0[^)]+\.md)\)", index)) == pages


def _exists(found: str, page: Path) -> bool:
    return any(list(base.glob(found)) for base in (*BASES, page.parent))

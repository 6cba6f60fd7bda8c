"""What stands in a Markdown page: its fenced blocks, its links and the files it names."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\.(?:py|json|ya?ml|md|proto|sql|toml|xml)")


def blocks(text: str, info: str) -> list[str]:
    """Return the fenced blocks that carry exactly this *info*, such as `bash tour`, in order."""
    return [body for found, body in _FENCE.findall(text) if found == info]


def links(text: str) -> Iterator[str]:
    """Yield every link that leads to a file of the repository, without its anchor."""
    for target in _LINK.findall(_FENCE.sub("", text)):
        if "://" not in target and not target.startswith("#"):
            yield target.partition("#")[0]


def named_files(text: str) -> Iterator[str]:
    """Yield every file that the prose names as code, from the root; the text of a link is left to the link."""
    prose = _LINK.sub("", _FENCE.sub("", text))
    yield from (code for code in _CODE.findall(prose) if _FILE.fullmatch(code))

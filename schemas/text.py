"""Text that every part can hold.

Python strings, JSON and Protobuf take characters that Postgres or UTF-8 do not: U+0000 and lone surrogates. Text that
means something to a program is refused when it holds one (`unstorable`); text that only people read, an error above
all, is made readable instead, since an error must always be recordable (`readable`).
"""

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def unstorable(text: str) -> str | None:
    """Name the first character of *text* that cannot be stored, such as `U+0000`; None when all can."""
    found = _UNSTORABLE.search(text)
    return f"U+{ord(found[0]):04X}" if found else None


def readable(text: str) -> str:
    """Return *text* with surrogate pairs joined, and U+0000 and lone surrogates replaced by U+FFFD."""
    if not _UNSTORABLE.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\0", REPLACEMENT)


def escaped(text: str) -> str:
    """Return *text* with each character that cannot be stored written as JSON escapes it, such as `\\u0000`."""
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cut(text: str, limit: int) -> str:
    """Return readable *text* of at most *limit* code points; a text that was cut ends with a mark and its length."""
    whole = readable(text)
    if len(whole) <= limit:
        return whole
    mark = f" … [cut, {len(whole)} characters]"
    return whole[: limit - len(mark)] + mark


def cut_utf8(text: str, limit_bytes: int) -> bytes:
    """Return readable *text* as at most *limit_bytes* of UTF-8, cut between characters; a cut text ends with `…`."""
    whole = readable(text).encode()
    if len(whole) <= limit_bytes:
        return whole
    mark = "…".encode()
    kept = whole[: limit_bytes - len(mark)].decode(errors="ignore")
    return kept.encode() + mark

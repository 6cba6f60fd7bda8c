"""What the story prints: chapters and lines everywhere, and on a terminal one more line that shows what is awaited."""

import sys
import textwrap
import time
from typing import Final, TextIO

_WIDTH: Final = 110


class Screen:
    """Writes to standard output. Without a terminal every line is plain, and progress shows in the lines alone."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._terminal = self._out.isatty()
        self._began = time.monotonic()
        self._status = False

    def chapter(self, title: str) -> None:
        self.line("")
        self.line(f"\033[1m{title}\033[0m" if self._terminal else title)

    def line(self, text: str) -> None:
        self._wipe()
        print(text, file=self._out, flush=True)

    def told(self, text: str) -> None:
        """One thing that happened, with the seconds since the story began."""
        self.line(f"  {time.monotonic() - self._began:5.1f} s  {text}")

    def prose(self, text: str) -> None:
        for line in textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  "):
            self.line(line)

    def awaiting(self, text: str) -> None:
        """Show what is awaited now; the next line takes its place."""
        if self._terminal:
            self._wipe()
            print(f"  … {text}"[:_WIDTH], end="", file=self._out, flush=True)
            self._status = True

    def _wipe(self) -> None:
        if self._status:
            print("\r\033[K", end="", file=self._out)
            self._status = False

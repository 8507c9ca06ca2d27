"""What the demo tells a person: one line per state change, and what would have become of it elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from typing import Final, TextIO

WIDTH_MAX: Final = 110  # columns
WIDTH_MIN: Final = 60
INDENT: Final = 22  # where the words begin


class Story:
    """The narration: on stdout, or on stderr when stdout is for the one object."""

    def __init__(self, *, as_json: bool) -> None:
        self._stream: TextIO = sys.stderr if as_json else sys.stdout
        self._began = time.monotonic()
        self._width = max(WIDTH_MIN, min(WIDTH_MAX, shutil.get_terminal_size((WIDTH_MAX, 24)).columns))
        self._bold = self._stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def title(self, text: str) -> None:
        """Paragraphs above or below the lines."""
        for paragraph in text.split("\n"):
            for line in textwrap.wrap(paragraph, self._width, break_long_words=False, break_on_hyphens=False) or [""]:
                self._write(line)

    def tell(self, who: str, text: str) -> None:
        """Something changed, so many seconds after the beginning."""
        self._line(f"{time.monotonic() - self._began:6.1f} s", who, text)

    def aside(self, who: str, text: str) -> None:
        """More about the line above."""
        self._line("", who, text)

    def verbatim(self, text: str) -> None:
        """Something to be copied: never broken."""
        self._write(" " * INDENT + text)

    def _line(self, when: str, who: str, text: str) -> None:
        head = f"{when:<10}{who:<{INDENT - 10}}"
        first, *more = textwrap.wrap(text, self._width - INDENT, break_long_words=False, break_on_hyphens=False)
        self._write((f"\x1b[1m{head}\x1b[0m" if self._bold else head) + first)
        for rest in more:
            self._write(" " * INDENT + rest)

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

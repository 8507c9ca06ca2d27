"""`python3 -m examples.release_notes.history WORDS…`: what `git WORDS…` says of the bundled history, on stdout.

The bundle is cloned into the folder of this attempt, so attempts share nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from examples import packet

BUNDLE = Path(__file__).with_name("history.bundle")


def main(words: list[str]) -> int:
    """Clone and ask; git's exit code."""
    given = packet.read()
    packet.tell(given, "asked git")
    # Nobody's settings decide what the notes say.
    alone = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    with tempfile.TemporaryDirectory(dir=packet.folder()) as place:
        code = subprocess.run(["git", "clone", "-q", "--bare", str(BUNDLE), place], env=alone, check=False).returncode
        if code == 0:
            code = subprocess.run(["git", "--git-dir", place, *words], env=alone, check=False).returncode
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

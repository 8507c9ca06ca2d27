"""`fencepost demo`: the main job on real data, its workers killed in the middle of the work and in the middle of the effect.

The press, the outside world that the run publishes to, lives in this process; the workers are processes of the real command.
Nothing here waits by sleeping, and no worker kills itself: one pauses at a fault point, the other's answer is held back.
"""

from __future__ import annotations

import asyncio
import json as json_
import signal
import sys
from typing import Any, Final

from fencepost.demo.stage import Example, Stage, find_example, open_stage
from fencepost.demo.story import Story
from fencepost.demo.trouble import CannotRun, WentWrong
from fencepost.settings import read_settings

EXIT_OK: Final = 0
EXIT_NOT_OK: Final = 1
EXIT_CANNOT_RUN: Final = 5
EXIT_INTERRUPTED: Final = 130


def run_demo(*, json: bool) -> int:
    """Play the demo; its exit code: 0 exactly if every claim held, 1 if one did not, 5 if this machine cannot play it.

    The last line of stdout is one object; with `json` it is the only one. Raises what the settings and the database raise.
    """
    story = Story(as_json=json)
    try:
        example, settings = find_example(), read_settings()
        story.title(_opening(example))
        with open_stage(example, settings) as stage:
            found = asyncio.run(_play_until_told(stage, story))
    except CannotRun as error:
        return _refuse("CANNOT_RUN", str(error), EXIT_CANNOT_RUN, json=json)
    except WentWrong as error:
        return _refuse("DEMO_FAILED", str(error), EXIT_NOT_OK, json=json)
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.stderr.write("left: its workers are ended, its run is cancelled\n")
        return EXIT_INTERRUPTED
    sys.stdout.write(json_.dumps(found, separators=(",", ":")) + "\n")
    sys.stdout.flush()
    return EXIT_OK if found["ok"] else EXIT_NOT_OK


def _opening(example: Example) -> str:
    return (
        "One run does real work while its workers are killed: it reads a sheet of airports, checks each row, waits for a "
        "review, publishes ONCE to a small web service here (the press), and writes a file. Its code: "
        f"{example.folder / 'airports' / 'app.py'}\n"
    )


def _refuse(code: str, message: str, exit_code: int, *, json: bool) -> int:
    sys.stderr.write(f"error: {message}\n")
    if json:
        sys.stdout.write(json_.dumps({"error": {"code": code, "message": message}}, separators=(",", ":")) + "\n")
        sys.stdout.flush()
    return exit_code


async def _play_until_told(stage: Stage, story: Story) -> dict[str, Any]:
    """The play; a SIGTERM or SIGHUP ends it as Ctrl-C does, with nothing left behind."""
    from fencepost.demo.play import play

    loop, playing = asyncio.get_running_loop(), asyncio.current_task()
    assert playing is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup leaves it
            loop.add_signal_handler(number, playing.cancel)
    return await play(stage, story)

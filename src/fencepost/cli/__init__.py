"""The command line: `fencepost`. stdout is data, stderr is words; a user's mistake is a sentence and an exit code, never a traceback.

Every command is a module of its own that is imported when it is asked for, so that `fencepost --version` starts at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from fencepost.cli import say
from fencepost.cli.lazy import Lazy

COMMANDS: Final = {
    "demo": "fencepost.cli.demo:demo",
    "dev": "fencepost.cli.worker:dev",
    "run": "fencepost.cli.run:run",
    "worker": "fencepost.cli.worker:worker",
    "runs": "fencepost.cli.runs:runs",
    "plan": "fencepost.cli.plan:plan",
    "graph": "fencepost.cli.graph:graph",
    "lanes": "fencepost.cli.lanes:lanes",
    "migrate": "fencepost.cli.migrate:migrate",
    "doctor": "fencepost.cli.doctor:doctor",
    "bench": "fencepost.cli.bench:bench",
}


def _version(ctx: click.Context, _param: Any, asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            click.echo(f"fencepost {version('fencepost')}")
        except PackageNotFoundError:
            click.echo("fencepost (not installed)")
        ctx.exit()


@click.group(
    cls=Lazy, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def root() -> None:
    """Durable execution on PostgreSQL that never guesses: kept, failed, or unknown and resolvable."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    given = list(sys.argv[1:] if args is None else args)
    say.steady_streams()
    try:
        code = root.main(given, prog_name="fencepost", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return say.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone: nothing more is written, also not at the interpreter's exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return say.BROKEN_PIPE
    except click.ClickException as error:
        return say.refuse(say.usage(error), as_json="--json" in given)
    except Exception as error:
        from fencepost.cli.failures import translate

        stop = translate(error)
        if stop is None:
            raise
        return say.refuse(stop, as_json="--json" in given)

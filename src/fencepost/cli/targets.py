"""MODULE:NAME, as a web server resolves it: the current directory first, then Python's path."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from fencepost.app import App
from fencepost.authoring import Step, Workflow
from fencepost.cli.say import USAGE, Stop, clean

if TYPE_CHECKING:
    from fencepost.planning import Plan


def find_app(target: str) -> App:
    """The App that MODULE:APP names. Raises Stop (2) with one clear sentence."""
    found = _find(target, "APP")
    if isinstance(found, App):
        return found
    raise _not_it(target, found, "an App")


def find_workflow(target: str) -> tuple[App, Workflow[Any, Any]]:
    """The workflow that MODULE:WORKFLOW names, and the App that declares it. Raises Stop (2) with one clear sentence."""
    found = _find(target, "WORKFLOW")
    if not _is_workflow(found):
        raise _not_it(target, found, "a workflow")
    workflow = found
    # The target's own module first; the App may also live in the module that the workflow was imported from.
    for module in [sys.modules[target.partition(":")[0]], *list(sys.modules.values())]:
        for thing in list(_names(module).values()):
            if isinstance(thing, App) and thing.registry.workflows.get(workflow.name) is workflow:
                return thing, workflow
    raise Stop(
        USAGE, "USAGE", f"{target} is declared by an App that no module holds: bind the App to a name in its module"
    )


def find_plan(target: str) -> tuple[Plan, list[App]]:
    """The plan that MODULE:PLAN names, and the Apps of that module, then of others that are loaded. Raises Stop (2)."""
    from fencepost.planning import Plan

    found = _find(target, "PLAN")
    if not isinstance(found, Plan):
        raise _not_it(target, found, "a plan")
    modules = [sys.modules[target.partition(":")[0]], *list(sys.modules.values())]
    return found, [thing for module in modules for thing in list(_names(module).values()) if isinstance(thing, App)]


def _is_workflow(thing: object) -> TypeGuard[Workflow[Any, Any]]:
    return isinstance(thing, Workflow)


def _not_it(target: str, found: object, wanted: str) -> Stop:
    kinds = ((Step, "a step"), (Workflow, "a workflow"), (App, "an App"))
    named: str = type(found).__name__
    kind = next((word for class_, word in kinds if isinstance(found, class_)), f"of type {named}")
    module = sys.modules[target.partition(":")[0]]
    wants: type[Any] = _class_of(wanted)
    return Stop(USAGE, "USAGE", f"{target} is {kind}, not {wanted}{_offer(module, wants)}")


def _class_of(wanted: str) -> type[Any]:
    """What `an App`, `APP` and so on are."""
    from fencepost.planning import Plan

    return {"app": App, "plan": Plan}.get(wanted.rpartition(" ")[2].lower(), Workflow)


def _offer(module: Any, kind: type[Any]) -> str:
    names = [name for name, thing in _names(module).items() if isinstance(thing, kind)]
    return f"; {module.__name__} has {', '.join(names[:5])}" if names else ""


def _names(module: object) -> dict[str, object]:
    """What a module binds; whatever else stands in sys.modules binds nothing."""
    return cast("dict[str, object]", getattr(module, "__dict__", {}))


def _find(target: str, what: str) -> object:
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise Stop(USAGE, "USAGE", f"{target!r} is not of the form MODULE:{what}")
    module = _import(module_name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            offer = _offer(module, _class_of(what))
            raise Stop(USAGE, "USAGE", f"module {module_name} has no {attribute!r}{offer}") from None
    return found


def _import(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise Stop(USAGE, "USAGE", f"there is no module {error.name!r} in {here} or on Python's path") from None
        raise _broken(name, error) from None
    except Exception as error:
        raise _broken(name, error) from None
    except SystemExit as error:
        raise Stop(
            USAGE,
            "USAGE",
            f"module {name} ends the process when it is imported (exit {error.code}): guard it with __name__",
        ) from None


def _broken(name: str, error: Exception) -> Stop:
    """The user's own module raised: what, and the last line of theirs that was running."""
    if isinstance(error, SyntaxError):
        return Stop(
            USAGE, "USAGE", f"module {name} cannot be imported: {error.filename}, line {error.lineno}: {error.msg}"
        )
    frames = [
        f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename and f.filename != __file__
    ]
    ours = str(Path(__file__).parent.parent)
    theirs = [f for f in frames if not f.filename.startswith(ours)] or frames
    where = f" ({theirs[-1].filename}, line {theirs[-1].lineno})" if theirs else ""
    return Stop(USAGE, "USAGE", f"module {name} cannot be imported: {type(error).__name__}: {clean(error)}{where}")

"""The house rules, each as a test that says why.

What has no subject yet has nothing to iterate, and no test here is ever skipped. Exceptions: tests/tidy/lists.py.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict

import pglast

from tests.tidy import attacks, lists, sql
from tests.tidy.tree import ROOT, SRC, calls, comments, files, functions, name, text, tree, under

PROSE = {".md", ".py", ".sql", ".toml", ".yml", ".yaml", ".sh", ".html", ".css", ".cfg", ""}


def laws() -> dict[str, list[str]]:
    """Chapter -> the numbers of its laws, as LAWS.md gives them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for number in re.findall(r"^(\d\d\.\d+) ", text(ROOT / "LAWS.md"), re.MULTILINE):
        found[number[:2]].append(number)
    return found


def law_tests() -> dict[str, set[str]]:
    """Test -> the laws its docstring or name cites, in the folders where laws are attacked."""
    found: dict[str, set[str]] = {}
    for path in [*under("tests/laws"), *under("tests/races")]:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                named = {f"{a}.{b}" for a, b in re.findall(r"_(\d\d)_(\d{1,2})(?=_|$)", node.name)}
                found[f"{name(path)}::{node.name}"] = named | set(sql.LAW.findall(ast.get_docstring(node) or ""))
    return found


def broken(faults: list[str], reason: str) -> str:
    return f"{reason}\n  " + "\n  ".join(faults)


# The law


def test_every_chapter_header_cites_every_law_of_its_number() -> None:
    given = laws()
    faults = [
        f"{path.name}: {law}"
        for number, path in sql.chapters().items()
        for law in given.get(number, [])
        if law not in sql.LAW.findall(sql.header(path)) and law not in lists.LAWS_KEPT_ELSEWHERE
    ]
    assert not faults, broken(faults, "A reviewer reads the header first: it says which laws the chapter keeps.")


def test_no_header_or_test_cites_a_law_that_does_not_exist() -> None:
    known = {law for chapter in laws().values() for law in chapter}
    cited = {name(path): set(sql.LAW.findall(sql.header(path))) for path in sql.chapters().values()} | law_tests()
    faults = [f"{where}: {law}" for where, numbers in cited.items() for law in sorted(numbers - known)]
    assert not faults, broken(faults, "A law is changed in LAWS.md, in its chapter and in its test together.")


def test_every_law_of_an_existing_chapter_has_a_test() -> None:
    tested = set().union(*law_tests().values())
    subject = [law for number in sql.chapters() for law in laws().get(number, [])]
    faults = [law for law in subject if law not in tested and law not in lists.LAWS_WITHOUT_TEST]
    assert not faults, broken(faults, "A law nobody attacks is a wish.")


def test_every_test_in_laws_cites_its_law() -> None:
    faults = [test for test, cited in law_tests().items() if not cited and test.startswith("tests/laws/")]
    assert not faults, broken(faults, 'A test of a law begins its docstring with the number: """40.3 ..."""')


def test_the_list_of_untested_laws_holds_no_law_that_is_tested_or_unknown() -> None:
    tested = set().union(*law_tests().values())
    known = {law for chapter in laws().values() for law in chapter}
    faults = [law for law in lists.LAWS_WITHOUT_TEST if law in tested or law not in known]
    faults += [law for law in lists.LAWS_KEPT_ELSEWHERE if law not in known]
    assert not faults, broken(faults, "Take these off the list: it says what is not yet attacked.")


def attacked() -> dict[str, str]:
    """Case of the attack list -> a file of tests that names it."""
    return {
        f"B{number}": name(path)
        for path in under("tests")
        if path.name != "attacks.py"
        for number in re.findall(r"\bB(0[1-9]|[1-9]\d|1\d\d)\b", text(path))
    }


def test_every_case_of_the_attack_list_is_cited_by_a_test_or_says_why_it_has_no_subject_yet() -> None:
    cited, known = attacked(), {f"B{case:02d}" for case in attacks.CASES}
    faults = [f"{case}: nobody attacks it" for case in known - set(cited) - set(attacks.WITHOUT_SUBJECT)]
    faults += [
        f"{case}: {cited[case]} attacks it, take it off the list" for case in attacks.WITHOUT_SUBJECT if case in cited
    ]
    faults += [f"{case}: {cited[case]} names it, but there is none" for case in set(cited) - known]
    faults += [f"{case}: listed, but there is none" for case in set(attacks.WITHOUT_SUBJECT) - known]
    assert not faults, broken(sorted(faults), "What broke elsewhere breaks here too, until a test has tried.")


# The ground floor


def test_every_sql_file_is_sql_and_every_body_is_plpgsql() -> None:
    for path in sql.sql_files():
        for function in sql.functions(path):
            for query in sql.queries(function):
                pglast.parse_sql(query)


def test_a_chapter_names_only_itself_and_earlier_chapters() -> None:
    owners, faults = sql.owners(), []
    for number, path in sorted(sql.chapters().items()):
        source = sql.bare(text(path))
        for match in sql.NAMED.finditer(source):
            owner = owners.get(match.group(1))
            if owner is None or (owner > number and (number, match.group(1)) not in lists.FORWARD):
                said = f"chapter {owner}" if owner else "nobody's"
                faults.append(f"{name(path)}:{sql.line_of(source, match.start())} fencepost.{match.group(1)}: {said}")
    assert not faults, broken(faults, "The law is read from the front: nothing may rest on a later page.")


def test_every_table_and_own_function_is_named_with_its_schema() -> None:
    own, given, faults = {f.name for f in sql.all_functions()}, sql.transition_tables(), []
    for path in sql.sql_files():
        sources = [(name(path), source) for _, source, _ in sql.statements(path)]
        sources += [(sql.where(function), query) for function in sql.functions(path) for query in sql.queries(function)]
        for where, source in sources:
            seen = sql.names_in(source)
            bad = (seen.unqualified - given) | (seen.calls & own) | seen.foreign
            faults += [f"{where}: {word}" for word in sorted(bad)]
    assert not faults, broken(faults, "search_path changes nothing (law 00.7).")


def test_the_clock_is_read_in_the_ground_chapter_only() -> None:
    clock = re.compile(
        r"\b(?:now|clock_timestamp|transaction_timestamp|statement_timestamp|timeofday)\s*\(|"
        r"\b(?:current_timestamp|current_date|current_time|localtimestamp|localtime)\b",
        re.IGNORECASE,
    )
    faults = [
        f"{name(path)}:{sql.line_of(text(path), found.start())} {found.group()}"
        for path in sql.sql_files()
        if not path.name.startswith("00_") and path.parent.name != "migrations"  # those repeat the chapters
        for found in clock.finditer(sql.bare(text(path)))
    ]
    assert not faults, broken(faults, "One clock, read once: fencepost.now_() (law 00.1).")


def test_advisory_locks_end_with_their_transaction() -> None:
    faults = [
        f"{name(path)}: {found}"
        for path in [*sql.sql_files(), *under("src/fencepost")]
        for found in re.findall(r"\bpg_(?:try_)?advisory_(?!xact)\w+", text(path))
    ]
    assert not faults, broken(faults, "A pooled connection may never come back to unlock: use the xact twins.")


def test_ids_are_never_cut_to_32_bits() -> None:
    cut = re.compile(
        r"\b(?:id|rid|sid|bid|mid|\w+_id|\w+_rid)\s*(?:::\s*|\s)(?:int|integer|int4|smallint|int2|serial)\b(?!\[)|"
        r"\bcast\s*\(\s*[\w.]*\b(?:rid|\w*_?id)\s+as\s+(?:int|integer|int4|smallint|int2)\b",
        re.IGNORECASE,
    )
    faults = [
        f"{name(path)}:{sql.line_of(text(path), found.start())} {found.group()}"
        for path in sql.sql_files()
        for found in cut.finditer(sql.bare(text(path)))
    ]
    assert not faults, broken(faults, "Internal ids are bigint: the table outlives two thousand million runs.")


def test_every_write_of_a_task_comes_after_its_lock() -> None:
    rooms, faults = sql.locking_rooms(), []
    for function in sql.all_functions():
        if re.search(r"-- unfenced: \S", function.source):
            continue
        source = sql.bare(function.source)
        locks = [found.start() for found in sql.LOCK.finditer(source)]
        locks += [found.start() for room in rooms for found in re.finditer(rf"fencepost\.{room}\(", source)]
        writes = [found.start() for found in sql.WRITES_TASK.finditer(source)]
        if writes and (not locks or min(writes) < min(locks)):
            faults.append(sql.where(function))
    assert not faults, broken(faults, "Judging without the lock is guessing; or say `-- unfenced: reason` (law 00.14).")


# The doors


def asked() -> dict[str, str]:
    """Word -> where Python gives it as the first argument of a function with call or door in its name."""
    found: dict[str, str] = {}
    for path in under("src/fencepost"):
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0]
            word = first.value if isinstance(first, ast.Constant) else None
            if (
                re.search(r"(?:^|_)(?:call|door)", called)
                and isinstance(word, str)
                and re.fullmatch(r"[a-z_]+\d*", word)
            ):
                found[word] = f"{name(path)}:{node.lineno}"
    return found


def words_of_python() -> set[str]:
    """Every string of src/fencepost that could be a door's name."""
    return {
        node.value
        for path in under("src/fencepost")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_door_that_python_calls_exists() -> None:
    faults = [f"{where}: {door}" for door, where in asked().items() if door not in sql.doors()]
    assert not faults, broken(faults, "Python writes no SQL but calls of doors, by their names.")


def test_every_door_is_called_from_python_or_is_for_sql_callers() -> None:
    called = words_of_python()
    faults = [door for door in sorted(sql.doors()) if door not in called and door not in lists.SQL_ONLY_DOORS]
    faults += [f"{door}: listed, but gone or called" for door in lists.SQL_ONLY_DOORS if door in called]
    faults += [f"{door}: listed, but gone" for door in lists.SQL_ONLY_DOORS if door not in sql.doors()]
    assert not faults, broken(faults, "A door nobody opens is dead, or its reason is in SQL_ONLY_DOORS.")


# Upstairs

BANNED = {
    "datetime.now": "the database's clock: fencepost.now_() (law 00.1)",
    "datetime.datetime.now": "the database's clock: fencepost.now_() (law 00.1)",
    "datetime.utcnow": "the database's clock: fencepost.now_() (law 00.1)",
    "time.time": "a deadline is monotonic, an instant comes from the database (law 00.1)",
    "time.time_ns": "a deadline is monotonic, an instant comes from the database (law 00.1)",
}


def test_banned_calls_are_not_in_the_source() -> None:
    found = [(name(path), *call) for path in under("src") for call in calls(path) if call[1] in BANNED]
    faults = [
        f"{path}:{n} {called}(): {BANNED[called]}" for path, n, called in found if path not in lists.MACHINE_CLOCKS
    ]
    faults += [
        f"{path}: reads no clock, take it off the list"
        for path in lists.MACHINE_CLOCKS.keys() - {path for path, _, _ in found}
    ]
    assert not faults, broken(faults, "No decision compares a machine's clock with the database's.")


def test_a_silenced_checker_is_told_why() -> None:
    silenced = re.compile(r"#\s*(?:type:\s*ignore|pyright:\s*ignore|noqa)\b")
    explained = re.compile(r"#\s*(?:(?:type|pyright):\s*ignore\[[\w, -]+\]|noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)\s+\S")
    faults = [
        f"{name(path)}:{number} {comment}"
        for path in [*under("src"), *under("tests")]
        for number, comment in comments(path)
        if silenced.match(comment) and not explained.match(comment)
    ]
    assert not faults, broken(faults, "Write the code that is silenced and the reason: # type: ignore[arg-type]  # why")


def test_no_sleep_without_a_reason() -> None:
    sleeps, faults = {"sleep", "time.sleep", "asyncio.sleep", "anyio.sleep"}, []
    for path in [*under("src/fencepost"), *under("tests")]:
        lines = ["", *text(path).splitlines()]
        for number, called in calls(path):
            said = "# waits:" in lines[number] or "# waits:" in lines[number - 1]
            if called in sleeps and not said:
                faults.append(f"{name(path)}:{number} {called}()")
    assert not faults, broken(faults, "Await an event, a lock or a deadline. Where a sleep is right: # waits: reason")


def test_only_the_command_line_prints() -> None:
    faults = [
        f"{name(path)}:{number}"
        for path in under("src/fencepost")
        if not name(path).startswith(lists.PRINTING)
        for number, called in calls(path)
        if called == "print"
    ]
    assert not faults, broken(faults, "stdout is data, and it belongs to the command line.")


def test_no_file_passes_four_hundred_lines() -> None:
    long = {
        name(path): count
        for path in files()
        if path.suffix in {".py", ".sql"} and (count := len(text(path).splitlines())) > 400
    }
    faults = [f"{path}: {count} lines" for path, count in long.items() if path not in lists.LONG_FILES]
    faults += [f"{path}: no longer long, take it off the list" for path in lists.LONG_FILES if path not in long]
    assert not faults, broken(faults, "One room each; or its reason is in LONG_FILES.")


def test_no_function_passes_forty_five_lines() -> None:
    long = {
        f"{name(path)}:{function}": length
        for path in under("src/fencepost")
        for function, length in functions(path)
        if length > 45
    }
    allowed = lists.LONG_FUNCTIONS
    faults = [f"{where}: {length} lines" for where, length in long.items() if length > allowed.get(where, 45)]
    faults += [f"{where}: no longer long, take it off the list" for where in allowed if where not in long]
    assert not faults, broken(faults, "A function is read at a glance. The list is a ratchet: it only goes down.")


# The repository


def test_no_file_names_a_machine_a_registry_or_unfinished_work() -> None:
    # Written in pieces, so that this file may be searched too.
    places = [f"/{folder}/" for folder in ("work", "root")] + ["/" + "farm", "farm" + "-"]
    hosts = ["pypi" + ".org", "python" + "hosted", "npm" + "js", "debian" + ".org"]
    unfinished = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b")
    faults = []
    for path in files():
        content = path.read_bytes()
        if b"\0" in content:
            continue
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            bad = [word for word in places + hosts if word in line]
            if path.suffix in PROSE and unfinished.search(line):
                bad.append("unfinished work")
            faults += [f"{name(path)}:{number} {word}" for word in bad]
    assert not faults, broken(faults, "A clone works on any machine, and what is not done is an issue, not a comment.")


def test_the_locks_pin_everything_by_hash_and_name_no_place() -> None:
    for lock in under("", ".lock"):
        pins = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text(lock), flags=re.MULTILINE).strip())
        faults = [
            pin.split("\n")[0] for pin in pins if not re.match(r"[\w.-]+==\S", pin) or "--hash=sha256:" not in pin
        ]
        assert not faults, broken(faults, f"{lock.name}: what is installed is what was locked.")
        assert not re.search(r"https?:|--index|--find-links| @ ", text(lock)), f"{lock.name} names a place"


def targets() -> dict[str, bool]:
    """Target of the Makefile that a person may ask for -> whether it has a help text."""
    makefile = text(ROOT / "Makefile")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    helped = set(re.findall(r"^([a-z-]+):[^#\n]*## \S", makefile, re.MULTILINE))
    return {target: target in helped for target in phony.group(1).split()}


def test_every_make_target_has_its_line_of_help() -> None:
    assert [target for target, helped in targets().items() if not helped] == []
    asked_for = set(re.findall(r"^([a-z-]+):", text(ROOT / "Makefile"), re.MULTILINE))
    assert asked_for <= set(targets()), "a target a person may ask for is in .PHONY"


def test_every_make_command_that_the_pages_show_exists() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *under("docs", ".md")]
    shown = {
        (name(page), target)
        for page in pages
        for block in re.findall(r"```[a-z]*\n.*?```|`[^`\n]+`", text(page), re.DOTALL)
        for target in re.findall(r"(?:^|[`\n])\s*(?:\$ )?make ([a-z-]+)", block)
    }
    assert {("README.md", "demo"), ("README.md", "test")} <= shown
    assert [f"{page}: make {target}" for page, target in sorted(shown) if target not in targets()] == []


def test_every_public_name_says_what_it_is() -> None:
    if (SRC / "__init__.py").exists():
        import fencepost

        public = {word: getattr(fencepost, word) for word in fencepost.__all__}
        # A dataclass without a docstring is given its signature as one: that says nothing.
        faults = [
            word
            for word, thing in public.items()
            if (inspect.isclass(thing) or inspect.isroutine(thing))
            and (
                not (thing.__dict__.get("__doc__") or (inspect.isroutine(thing) and thing.__doc__))
                or thing.__doc__.startswith(f"{word}(")
            )
        ]
        assert not faults, broken(faults, "A docstring is a promise; what is public has one.")


def test_every_setting_is_in_the_pages() -> None:
    pages = "\n".join(text(page) for page in [ROOT / "README.md", *under("docs", ".md")])
    source = SRC / "settings.py"
    known = set(re.findall(r"\bFENCEPOST_[A-Z_]+\b", text(source))) if source.exists() else set()
    faults = sorted(setting for setting in known if not re.search(rf"\b{setting}\b", pages))
    assert not faults, broken(faults, "A setting nobody can read about is a trap.")

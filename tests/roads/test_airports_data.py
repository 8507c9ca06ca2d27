"""The airports example: its data is the recorded data, its functions are right about it, its press counts effects."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))  # examples are read as a user has them, from their own folder

from airports import make_data, press_client  # noqa: E402  (the path is set above)
from airports.press import Press, TornFile  # noqa: E402  (the same)
from airports.work import AIRPORTS, DATA, BadSheet, Reason, canonical, locate, read_rows, summarise  # noqa: E402  (the same)

RECORDED = {
    "LICENSE-airportsdata": "1ab6bf365e1f6a1883ab6a2f797e761b221081b52a33273d86c157fd562106be",
    "NOTICE": "952ed3d4bc3f254fa68a0729dbd91b38e5881966b47d708fbd0b6a48ab62791c",
    "airports.csv": "b324b567377af766639c9e1f7d4c29e3a0f09e9a00ce30866cfb86a8ec9bd2e9",
    "iso3166.tab": "837c80785080c8433fd9d4ea87e78f161ac7a40389301c5153d4f90198baeb2a",
    "zone1970.tab": "5f23781702bf51408ff1581daa109ab3b9257fb433b1554e579d92172892c0cf",
}
HEADER = "icao,iata,name,city,country,tz\n"
KDEN = "KDEN,DEN,Denver International Airport,Denver,US,America/Denver\n"
POSTER = """
import asyncio, sys
from airports.press_client import post
print(asyncio.run(post(sys.argv[1], sys.argv[2], sys.argv[3], timeout=20)), flush=True)
"""
SOON = 20.0  # seconds: far more than any wait here takes, so that a hang fails instead of hanging


def start_poster(url: str, key: str, body: str) -> subprocess.Popen[str]:
    """A process of its own that posts once and prints the path it was answered."""
    return subprocess.Popen(
        [sys.executable, "-c", POSTER, url, key, body], cwd=EXAMPLES, stdout=subprocess.PIPE, text=True
    )


def say(url: str, request: bytes) -> str:
    """Sends raw bytes to the press; everything it answers."""
    host, port = url.removeprefix("http://").split(":")
    with closing(socket.create_connection((host, int(port)), timeout=SOON)) as line:
        line.sendall(request)
        line.shutdown(socket.SHUT_WR)
        with line.makefile("rb") as answer:
            return answer.read().decode()


# The data


def test_bundled_files_are_the_recorded_ones() -> None:
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in DATA.iterdir() if file.name[0] != "."}
    assert found == RECORDED


def test_sheet_has_three_thousand_airports_each_with_its_own_codes() -> None:
    rows = read_rows(AIRPORTS)
    assert len(rows) == 3_000
    assert len({row["icao"] for row in rows}) == 3_000
    assert len({row["iata"] for row in rows} - {""}) == 3_000
    assert list(rows[0]) == "icao iata name city subd country elevation lat lon tz lid".split()


def test_data_is_cut_by_copying_lines_untouched() -> None:
    lines = [b'"icao","iata"\n', b'"00AA",""\n', b'"07FA","OCA"\n', b'"AGGH","HIR"\n', b'"X","Y"\n']
    assert make_data.first_with_iata(lines, 2) == b'"icao","iata"\n"07FA","OCA"\n"AGGH","HIR"\n'
    with pytest.raises(ValueError, match="only 3 rows"):
        make_data.first_with_iata(lines, 4)


# Reading a sheet


def test_a_limit_takes_the_first_rows() -> None:
    assert read_rows(AIRPORTS, 7) == read_rows(AIRPORTS)[:7]
    assert read_rows(str(AIRPORTS), 1)[0]["iata"] == "OCA"


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_means_nothing_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit must be at least 1"):
        read_rows(AIRPORTS, limit)


def test_a_byte_order_mark_and_quoted_line_breaks_are_read(tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_bytes(
        b"\xef\xbb\xbf" + HEADER.encode() + b'KDEN,DEN,"Denver\nInternational",Denver,US,America/Denver\n'
    )
    assert read_rows(sheet)[0]["name"] == "Denver\nInternational"


@pytest.mark.parametrize(
    ("content", "line", "column", "problem"),
    [
        ("", 1, 1, "empty"),
        (HEADER + KDEN + "KSFO,SFO,San Francisco\n", 3, 4, "3 fields where the header has 6"),
        (HEADER + KDEN.replace("\n", ",x\n"), 2, 7, "7 fields where the header has 6"),
        (HEADER + "\n" + KDEN, 2, 1, "0 fields"),
        ("icao,iata,name,city,country\n", 1, 6, "'tz' is missing"),
        ("icao,iata,icao,name,city,country,tz\n", 1, 3, "'icao' is there twice"),
        (HEADER + KDEN + KDEN, 3, 1, "'KDEN' is already that of line 2"),
        (HEADER + KDEN.replace("KDEN", ""), 2, 1, "'icao' is empty"),
        ("iata,name,icao,city,country,tz\nA,a,X,,,\nB,b,X,,,\n", 3, 3, "'X' is already that of line 2"),
        (HEADER + 'KDEN,DEN,"Denver\nInternational",Denver,US,America/Denver\n' + KDEN, 4, 1, "of line 2"),
        (HEADER + KDEN + 'KSFO,SFO,"San Francisco\n', 3, 1, "not CSV: unexpected end of data"),
        (HEADER + KDEN + 'KSFO,SFO,"San" Francisco,x,US,y\n', 3, 1, "not CSV"),
    ],
)
def test_a_broken_sheet_is_refused_with_line_and_column(
    tmp_path: Path, content: str, line: int, column: int, problem: str
) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(content, encoding="utf-8", newline="")
    with pytest.raises(BadSheet) as caught:
        read_rows(sheet, limit=1)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"sheet.csv, line {line}, column {column}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize(("encoding", "line", "column", "byte"), [("latin-1", 3, 4, "0xfc"), ("utf-16", 1, 1, "0xff")])
def test_another_encoding_is_refused_where_it_first_shows(
    tmp_path: Path, encoding: str, line: int, column: int, byte: str
) -> None:
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(HEADER + KDEN + "LSZH,ZRH,Kloten,Zürich,CH,Europe/Zurich\n", encoding=encoding)
    with pytest.raises(BadSheet, match=f"line {line}, column {column}: the byte {byte} is not UTF-8"):
        read_rows(sheet)


def test_a_sheet_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_rows(tmp_path / "none.csv")


# Locating and summing up


@pytest.mark.parametrize(
    ("iata", "country_name", "zone", "reason"),
    [
        ("FRA", "Germany", "Europe/Berlin", None),
        ("LHR", "Britain (UK)", "Europe/London", None),
        ("ATL", "United States", "America/New_York", None),
        ("ARN", "Sweden", "Europe/Stockholm", "unlisted-zone"),
        ("KEF", "Iceland", "Atlantic/Reykjavik", "unlisted-zone"),
        ("EUN", "Western Sahara", "Africa/Casablanca", "other-country"),
        ("PRN", None, "Europe/Belgrade", "unknown-country"),
    ],
)
def test_known_airports_are_located(iata: str, country_name: str | None, zone: str, reason: Reason | None) -> None:
    (row,) = [row for row in read_rows(AIRPORTS) if row["iata"] == iata]
    located = locate(row)
    assert (located.country_name, located.zone, located.reason) == (country_name, zone, reason)
    assert located.zone_ok is (reason is None)
    assert (located.icao, located.name, located.city) == (row["icao"], row["name"], row["city"])


def test_a_zone_listed_for_several_countries_is_good_for_each_and_no_other() -> None:
    zurich = next(row for row in read_rows(AIRPORTS) if row["iata"] == "FRA") | {"tz": "Europe/Zurich"}
    assert [locate(zurich | {"country": code}).zone_ok for code in ("CH", "DE", "LI", "FR")] == [
        True,
        True,
        True,
        False,
    ]


def test_the_summary_of_the_bundled_sheet_is_the_recorded_one() -> None:
    summary = summarise([locate(row) for row in read_rows(AIRPORTS)])
    assert (summary.rows, summary.zones_ok, summary.zones_not_ok) == (3_000, 2_262, 738)
    assert summary.reasons == {"other-country": 3, "unknown-country": 1, "unlisted-zone": 734}
    assert len(summary.countries) == 87
    assert (summary.countries["US"], summary.countries["DE"], summary.countries["XK"]) == (1_079, 90, 1)
    assert summary.sha256 == "bd2bd4364ad5be590a9508dc58cc5f626f7e47b8585f6f18e36a976d4a97fda6"


def test_the_summary_tells_a_lost_doubled_or_moved_row() -> None:
    rows = [locate(row) for row in read_rows(AIRPORTS, 5)]
    told = [rows, rows[1:], [*rows, rows[0]], rows[::-1]]
    assert len({summarise(rows).sha256 for rows in told}) == 4
    assert summarise(rows) == summarise(list(rows))
    assert summarise([]).sha256 == hashlib.sha256(b"[]").hexdigest()


def test_results_survive_json() -> None:
    located = locate(read_rows(AIRPORTS, 1)[0])
    assert type(located)(**json.loads(canonical(asdict(located)))) == located
    summary = summarise([located])
    assert type(summary)(**json.loads(canonical(asdict(summary)))) == summary


# The press


@pytest.mark.asyncio
async def test_a_post_is_on_file_before_its_answer_and_is_found_by_key(tmp_path: Path) -> None:
    async with Press(tmp_path / "posts") as press:
        assert press.effects() == 0
        assert await press_client.find(press.url, "a/1 ä") is None
        assert await press_client.post(press.url, "k 1&?", '{"rows": 1}\n"ä"') == "/posts/1"
        assert press.effects() == 1
        assert await press_client.post(press.url, "k2", "") == "/posts/2"
        assert await press_client.find(press.url, "k 1&?") == "/posts/1"
    lines = [json.loads(line) for line in (tmp_path / "posts").read_text(encoding="utf-8").splitlines()]
    assert lines == [{"key": "k 1&?", "body": '{"rows": 1}\n"ä"', "n": 1}, {"key": "k2", "body": "", "n": 2}]


@pytest.mark.asyncio
async def test_a_double_post_shows_as_two_lines_and_the_first_is_found(tmp_path: Path) -> None:
    async with Press(tmp_path / "posts") as press:
        # More at once than asyncio has default threads: a press that printed in one of those would wait for itself.
        posts = [press_client.post(press.url, "k", str(number)) for number in range(40)]
        answers = await asyncio.wait_for(asyncio.gather(*posts), SOON)
        assert set(answers) == {f"/posts/{number}" for number in range(1, 41)}
        assert await press_client.find(press.url, "k") == "/posts/1"
        assert press.effects() == 40
    assert [json.loads(line)["n"] for line in press.path.read_text().splitlines()] == list(range(1, 41))


@pytest.mark.asyncio
async def test_the_first_answer_is_held_while_another_process_is_served(tmp_path: Path) -> None:
    async with Press(tmp_path / "posts", hold_first=True) as press, asyncio.timeout(SOON):
        held = start_poster(press.url, "first", "one")
        with held:
            await press.posted.wait()
            assert press.effects() == 1, "printed before it is answered"
            assert await press_client.find(press.url, "first") == "/posts/1"
            with start_poster(press.url, "second", "two") as other:
                answer, _ = await asyncio.to_thread(other.communicate)
            assert (answer, other.returncode) == ("/posts/2\n", 0)
            assert held.poll() is None, "the first is still waiting"
            press.release()
            answer, _ = await asyncio.to_thread(held.communicate)
        assert (answer, held.returncode) == ("/posts/1\n", 0)
        assert press.effects() == 2


@pytest.mark.asyncio
async def test_a_poster_killed_while_its_answer_is_held_has_printed_once(tmp_path: Path) -> None:
    async with Press(tmp_path / "posts", hold_first=True) as press, asyncio.timeout(SOON):
        with start_poster(press.url, "job", "one") as poster:
            await press.posted.wait()
            poster.kill()
            answer, _ = await asyncio.to_thread(poster.communicate)
        assert (answer, poster.returncode) == ("", -signal.SIGKILL)
        press.release()
        assert await press_client.find(press.url, "job") == "/posts/1"
        assert await press_client.post(press.url, "later", "two") == "/posts/2"
        assert press.effects() == 2


@pytest.mark.asyncio
async def test_a_held_answer_that_does_not_come_is_lost_not_refused(tmp_path: Path) -> None:
    async with Press(tmp_path / "posts", hold_first=True) as press:
        with pytest.raises(press_client.PressLost):
            await press_client.post(press.url, "k", "", timeout=0.3)
        assert await press_client.find(press.url, "k") == "/posts/1"


@pytest.mark.asyncio
async def test_a_press_that_stops_cuts_the_answer_it_holds(tmp_path: Path) -> None:
    press = Press(tmp_path / "posts", hold_first=True)
    await press.start()
    posting = asyncio.create_task(press_client.post(press.url, "k", ""))
    await press.posted.wait()
    await press.stop()
    await press.stop()
    with pytest.raises(press_client.PressLost):
        await asyncio.wait_for(posting, SOON)
    with pytest.raises(press_client.PressLost):
        await press_client.find(press.url, "k")
    assert press.effects() == 1


@pytest.mark.asyncio
async def test_a_new_press_goes_on_with_the_file_of_the_last(tmp_path: Path) -> None:
    file = tmp_path / "posts"
    async with Press(file) as press:
        await press_client.post(press.url, "a", "")
    with file.open("a") as more:
        more.write('{"key":"b","body":"","n":2}\n')
    assert press.effects() == 2, "counted in the file, not remembered"
    async with Press(file) as press:
        assert await press_client.find(press.url, "b") == "/posts/2"
        assert await press_client.post(press.url, "a", "") == "/posts/3"
        assert await press_client.find(press.url, "a") == "/posts/1"
    with file.open("a") as more:
        more.write('{"key":"c"')
    with pytest.raises(TornFile):
        await Press(file).start()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("POST /posts HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 400),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: \xe9\r\nContent-Length: 1\r\n\r\nx", 400),
        (f"POST /posts HTTP/1.1\r\nIdempotency-Key: {'k' * 201}\r\nContent-Length: 1\r\n\r\nx", 400),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\n\xff", 400),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\n\r\nx", 411),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: -1\r\n\r\nx", 411),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: 1048577\r\n\r\n", 413),
        (f"POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: {'9' * 5000}\r\n\r\n", 413),
        ("POST /other HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx", 404),
        ("DELETE /posts?key=k HTTP/1.1\r\n\r\n", 405),
        ("GET /posts HTTP/1.1\r\n\r\n", 400),
        ("GET /posts?key=k HTTP/1.1\r\n\r\n", 404),
        ("nonsense\r\n\r\n", 400),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: 9\r\n\r\nshort", None),
        ("POST /posts HTTP/1.1\r\nIdempotency-Key: k\r\n", None),
    ],
)
async def test_what_is_not_a_whole_good_request_prints_nothing(
    tmp_path: Path, request_text: str, status: int | None
) -> None:
    async with Press(tmp_path / "posts") as press:
        answer = await asyncio.to_thread(say, press.url, request_text.encode("latin-1"))
        assert answer.startswith(f"HTTP/1.1 {status} ") if status else answer == ""
        assert press.effects() == 0
        assert not press.posted.is_set()


@pytest.mark.asyncio
async def test_a_refused_post_says_so_to_the_client(tmp_path: Path) -> None:
    async with Press(tmp_path / "posts") as press:
        with pytest.raises(press_client.PressRefused, match="Idempotency-Key"):
            await press_client.post(press.url, "", "body")
        assert press.effects() == 0


@pytest.mark.asyncio
async def test_a_post_that_could_not_be_put_on_disk_is_lost_not_refused(tmp_path: Path) -> None:
    async with Press(tmp_path / "posts") as press:
        press.path.mkdir()  # nothing can be appended to a folder, not even by root
        with pytest.raises(press_client.PressLost, match="may not be on disk"):
            await press_client.post(press.url, "k", "body")
        assert not press.posted.is_set()
        assert await press_client.find(press.url, "k") is None


@pytest.mark.asyncio
async def test_a_proxy_of_the_environment_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with Press(tmp_path / "posts") as press:
        assert await press_client.post(press.url, "k", "") == "/posts/1"

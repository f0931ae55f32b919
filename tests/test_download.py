"""What is fetched has its name only when it is whole; a stopped download is gone on with; no network is needed."""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from onesided import InputError
from onesided.cli import main
from onesided.datasets import catalogue
from onesided.datasets import download as downloading
from onesided.datasets.download import download

CONTENT = bytes(range(256)) * 40
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT, in ranges where these are asked for; what it was asked for is kept."""

    daemon_threads = True
    content = CONTENT
    kind = "application/zip"
    takes_ranges = True
    sends = len(CONTENT)  # bytes after which it hangs up
    status: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/ml-1m.zip"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if server.status:
            self.send_error(server.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and server.takes_ranges else 0
        if start >= len(server.content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Type", server.kind)
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        self.wfile.write(server.content[start : start + server.sends])

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of MovieLens 1M, and a catalogue that knows of no other."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloading, "_CHUNK", 1000)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        specify(monkeypatch, url=server.url, md5=MD5)
        yield server
        server.shutdown()
        thread.join()


def specify(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    spec = replace(catalogue.CATALOGUE["movielens-1m"], **changes)
    monkeypatch.setattr(catalogue, "CATALOGUE", {**catalogue.CATALOGUE, "movielens-1m": spec})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["data", *map(str, arguments)])


def files(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_get_shows_the_terms_and_checks_the_file(server: Server, tmp_path: Path) -> None:
    result = run("get", "movielens-1m", "--to", tmp_path, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "file": str(tmp_path / "ml-1m.zip"),
        "bytes": len(CONTENT),
        "checked": f"MD5 {MD5}, as published",
    }
    assert (
        "https://grouplens.org/datasets/movielens/1m/\nLicence: GroupLens usage licence: research only" in result.stderr
    )
    assert (tmp_path / "ml-1m.zip").read_bytes() == CONTENT
    assert files(tmp_path) == ["ml-1m.zip"]
    again = run("get", "movielens-1m", "--to", tmp_path)
    assert again.exit_code == 0
    assert "is there already" in again.stderr
    assert len(server.asked) == 1


def test_a_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[::-1]
    result = run("get", "movielens-1m", "--to", tmp_path)
    assert result.exit_code == 2
    assert f"and {MD5} is published: it was garbled on the way, or has changed; nothing was kept" in result.stderr
    assert files(tmp_path) == []


def test_a_file_of_that_name_that_is_another(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ml-1m.zip").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"exists, and is not the file that is published .*; remove it first"):
        download("movielens-1m", tmp_path)
    assert (tmp_path / "ml-1m.zip").read_bytes() == b"mine"


def stop_after(bytes_: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        assert total == len(CONTENT)
        if done >= bytes_:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("takes_ranges", [True, False])
def test_an_interrupted_download_is_gone_on_with(server: Server, tmp_path: Path, takes_ranges: bool) -> None:
    server.takes_ranges = takes_ranges
    with pytest.raises(KeyboardInterrupt):
        download("movielens-1m", tmp_path, progress=stop_after(3000))
    assert files(tmp_path) == ["ml-1m.zip.part"]
    assert (tmp_path / "ml-1m.zip.part").read_bytes() == CONTENT[:3000]
    said: list[str] = []
    found = download("movielens-1m", tmp_path, note=said.append)
    assert server.asked == [None, "bytes=3000-"]
    assert ("Continuing after 3,000 bytes" in said) == takes_ranges
    assert found.path.read_bytes() == CONTENT
    assert files(tmp_path) == ["ml-1m.zip"]


def test_ctrl_c_leaves_nothing_that_looks_whole(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("onesided.cli.data"), "bar", lambda title: nullcontext(stop_after(3000)))
    result = run("get", "movielens-1m", "--to", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Aborted!" in result.stderr
    assert files(tmp_path) == ["ml-1m.zip.part"]


def test_a_connection_that_ends_early_is_told_and_gone_on_with(server: Server, tmp_path: Path) -> None:
    server.sends = 6000
    with pytest.raises(InputError, match="ended after 6,000 of 10,240 bytes; run it again"):
        download("movielens-1m", tmp_path)
    assert files(tmp_path) == ["ml-1m.zip.part"]
    assert download("movielens-1m", tmp_path).bytes == len(CONTENT)


def test_a_part_longer_than_the_file_is_begun_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "ml-1m.zip.part").write_bytes(CONTENT * 2)
    assert download("movielens-1m", tmp_path).path.read_bytes() == CONTENT
    assert server.asked == [f"bytes={2 * len(CONTENT)}-", None]


def test_without_a_checksum_a_part_is_begun_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specify(monkeypatch, url=server.url, md5=None)
    (tmp_path / "ml-1m.zip.part").write_bytes(b"of an older file")
    found = download("movielens-1m", tmp_path)
    assert server.asked == [None]
    assert found.path.read_bytes() == CONTENT
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    assert found.checked.startswith(f"no checksum is published; 10,240 bytes, SHA-256 {sha256}")
    assert download("movielens-1m", tmp_path) == found


def test_servers_that_have_no_file(server: Server, tmp_path: Path) -> None:
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(InputError, match=r"is a web page, not the file; see https://grouplens.org"):
        download("movielens-1m", tmp_path)
    server.status = 404
    with pytest.raises(InputError, match=r"cannot fetch http.* \(HTTP Error 404: .*\); try again, or see https"):
        download("movielens-1m", tmp_path)
    assert files(tmp_path) == []


def test_a_server_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specify(monkeypatch, url=(tmp_path / "absent.zip").as_uri())
    with pytest.raises(InputError, match=r"cannot fetch file:.*absent.zip .*; try again"):
        download("movielens-1m", tmp_path)


def test_nothing_is_fetched_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "urlopen", lambda *given, **how: pytest.fail("something was fetched"))
    result = run("list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["name", "rows", "×", "columns", "entries"]
    assert lines[4].split() == ["movielens-1m", "6,040", "×", "3,706", "1,000,209"]
    assert "    CC BY-SA 4.0" in lines
    listed = json.loads(run("list", "--json").stdout)["datasets"]
    assert [one["name"] for one in listed] == [name for name in catalogue.CATALOGUE if name != "table"]
    assert listed[6]["rows"] is None


@pytest.mark.parametrize("name", ["jester", "book-crossing", "table"])
def test_what_cannot_be_fetched_says_how_to_come_by_it(name: str, tmp_path: Path) -> None:
    result = run("get", name, "--to", tmp_path)
    assert result.exit_code == 2
    assert f"{name} cannot be fetched by an address" in result.stderr
    assert catalogue.CATALOGUE[name].how in result.stderr


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the folder does not exist; make it first"):
        download("movielens-1m", tmp_path / "none")
    assert run("get", "netflix", "--to", tmp_path).exit_code == 2

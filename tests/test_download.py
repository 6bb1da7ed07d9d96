"""Downloads from a real server on this machine, good and bad."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import ssl
import threading
import urllib.error
from pathlib import Path

import pytest
from local_server import Server, serving

from instant.data import download
from instant.data.download import check_address, fetch
from instant.errors import InputError

CONTENT = random.Random(0).randbytes(1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def get(server: Server, target: Path, **options: object) -> Path:
    options = {"sha256": SHA256, "progress": False, "attempts": 3, "pause": 0.01} | options
    return fetch(f"{server.url}/{target.name}", target, **options)


def ranges(server: Server) -> list[str | None]:
    return [headers.get("Range") for _, headers in server.seen]


@pytest.fixture
def target(tmp_path):
    return tmp_path / "sub" / "set.bin"


@pytest.fixture
def files():
    return {"/set.bin": CONTENT}


def assert_arrived(target):
    assert target.read_bytes() == CONTENT
    assert os.listdir(target.parent) == [target.name], "no part, note or lock stays behind"


@pytest.mark.parametrize("options", [{}, {"size": len(CONTENT)}])
def test_plain(target, files, options):
    with serving(files=files) as server:
        assert get(server, target, **options) == target
    assert_arrived(target)


def test_without_announced_length(target, files):
    with serving(files=files, announce=False) as server:
        get(server, target)
    assert_arrived(target)


def test_without_announced_length_a_cut_is_noticed_by_the_known_size(target, files):
    with serving(files=files, announce=False, cuts=[400_000]) as server:
        get(server, target, size=len(CONTENT))
        assert ranges(server) == [None, "bytes=400000-"]
    assert_arrived(target)


def test_a_good_file_is_not_fetched_again_and_a_bad_one_is_named(target, files):
    with serving(files=files) as server:
        get(server, target)
        get(server, target)
        assert len(server.seen) == 1
        target.write_bytes(b"something else")
        with pytest.raises(InputError, match=rf"set\.bin: expected sha256 {SHA256}, got .*Delete it"):
            get(server, target)
        assert target.read_bytes() == b"something else"


def test_cut_connections_are_continued_where_they_stopped(target, files):
    with serving(files=files, cuts=[300_000, 200_000], etag='"v1"') as server:
        get(server, target)
        assert ranges(server) == [None, "bytes=300000-", "bytes=500000-"]
        assert server.seen[1][1]["If-Range"] == '"v1"'
    assert_arrived(target)


def test_progress_resets_the_count_of_failures(target, files):
    with serving(files=files, cuts=[100_000] * 8) as server:
        get(server, target, attempts=2)
        assert len(server.seen) == 9
    assert_arrived(target)


def test_a_part_from_an_earlier_run_is_continued(target, files):
    with serving(files=files, etag='"v1"', cuts=[300_000, 0, 0]) as server:
        with pytest.raises(InputError):
            get(server, target)
        assert (target.parent / "set.bin.part").read_bytes() == CONTENT[:300_000]
        server.seen.clear()
        get(server, target)
        assert ranges(server) == ["bytes=300000-"]
    assert_arrived(target)


def test_a_server_that_ignores_ranges(target, files):
    with serving(files=files, cuts=[300_000], ranges=False) as server:
        get(server, target)
        assert ranges(server) == [None, "bytes=300000-"]
    assert_arrived(target)


def test_a_server_that_sends_another_range(target, files):
    with serving(files=files, cuts=[300_000], shift=-7) as server:
        get(server, target)
        assert ranges(server) == [None, "bytes=300000-", None]
        assert_arrived(target)
        target.rename(f"{target}.part")
        os.truncate(f"{target}.part", 300_000)
        with pytest.raises(InputError, match="another range than asked"):
            get(server, target, attempts=1)


def test_a_file_that_changed_meanwhile_starts_over(target, files):
    with serving(files={"/set.bin": bytes(1_000_000)}, etag='"old"', always_cut=300_000, ranges=False) as server:
        with pytest.raises(InputError):
            get(server, target)
        server.files, server.etag, server.always_cut, server.ranges = files, '"new"', None, True
        server.seen.clear()
        get(server, target)
        assert server.seen[0][1]["If-Range"] == '"old"'
        assert len(server.seen) == 1, "one request: the answer was the whole new file"
    assert_arrived(target)


@pytest.mark.parametrize("stale", [b"x" * 300_000, b"x" * 1_000_000, b"x" * 1_200_000])
@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_stale_part_without_a_mark_costs_one_more_download(target, files, stale, size):
    target.parent.mkdir()
    (target.parent / "set.bin.part").write_bytes(stale)
    with serving(files=files) as server:
        get(server, target, size=size)
        assert ranges(server)[-1] is None
    assert_arrived(target)


@pytest.mark.parametrize("size", [None, len(CONTENT)])
def test_a_whole_part_needs_no_second_transfer(target, files, size):
    target.parent.mkdir()
    (target.parent / "set.bin.part").write_bytes(CONTENT)
    with serving(files=files) as server:
        get(server, target, size=size)
        assert ranges(server) == ([] if size else ["bytes=1000000-"])
    assert_arrived(target)


@pytest.mark.parametrize(
    "manners",
    [{"cuts": [300_000], "always_cut": 0}, {"ranges": False, "always_cut": 300_000}],
    ids=["ranges", "no ranges"],
)
def test_always_cut_gives_up_and_keeps_the_part(target, files, manners):
    with serving(files=files, **manners) as server:
        with pytest.raises(InputError) as caught:
            get(server, target)
        assert len(server.seen) == 3
    sentence = str(caught.value)
    assert "stopped 3 times in a row" in sentence
    assert "300,000 bytes are kept in" in sentence
    assert f"{target}.part" in sentence
    assert (target.parent / "set.bin.part").read_bytes() == CONTENT[:300_000]
    assert not target.exists()


def test_wrong_bytes_are_removed(target):
    with serving(files={"/set.bin": b"not what we wanted"}) as server, pytest.raises(InputError) as caught:
        get(server, target)
    got = hashlib.sha256(b"not what we wanted").hexdigest()
    assert f"expected sha256 {SHA256}, got {got}" in str(caught.value)
    assert str(target.parent) in str(caught.value)
    assert os.listdir(target.parent) == []


def test_a_wrong_length_is_refused_before_the_transfer(target):
    offered = {"/set.bin": b"<html>log in first</html>"}
    sentence = "expected 1,000,000 bytes, the server offers 25"
    with serving(files=offered) as server, pytest.raises(InputError, match=sentence):
        get(server, target, size=len(CONTENT))
    assert os.listdir(target.parent) == []


def test_more_than_the_disk_holds_is_refused(target, files):
    with (
        serving(files=files, pretend=1 << 60) as server,
        pytest.raises(InputError, match=r"needs .* more bytes, .* free"),
    ):
        get(server, target)


def test_404_is_final_and_says_what_to_do(target):
    with serving() as server, pytest.raises(InputError) as caught:
        get(server, target)
    assert "answered 404" in str(caught.value)
    assert f"put it in {target.parent}" in str(caught.value)
    assert len(server.seen) == 1


def test_a_passing_server_error_is_retried(target, files):
    with serving(files=files, statuses=[503, 500]) as server:
        get(server, target)
        assert len(server.seen) == 3
    assert_arrived(target)


def test_a_python_without_certificates_is_not_sent_online(target, monkeypatch):
    def unverified(part, start):
        raise urllib.error.URLError(ssl.SSLCertVerificationError(1, "unable to get local issuer certificate"))

    monkeypatch.setattr(download, "_open", unverified)
    with pytest.raises(InputError, match=r"example\.org cannot be verified: .* run 'Install Certificates\.command'"):
        fetch("https://example.org/set.bin", target, sha256=SHA256, progress=False)


def test_offline_says_which_file_from_where_and_where_to_put_it(target):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/set.bin"
    with pytest.raises(InputError) as caught:
        fetch(url, target, sha256=SHA256, progress=False)
    sentence = str(caught.value)
    assert sentence.startswith("Cannot reach 127.0.0.1")
    assert "set.bin" in sentence
    assert f"fetch {url} elsewhere and put it in {target.parent}" in sentence


def test_redirects_are_followed_on_this_machine_only(target, files):
    with serving(files=files, redirects={"/moved.bin": "/set.bin", "/away.bin": "http://example.com/x"}) as server:
        moved = get(server, target.with_name("moved.bin"))
        assert moved.read_bytes() == CONTENT
        with pytest.raises(InputError, match=r"http://example\.com/x \(redirected from .*expected .* https://"):
            get(server, target.with_name("away.bin"))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a",
        "ftp://example.com/a",
        "file:///etc/passwd",
        "http://127.0.0.1@example.com/a",
        "https:///a",
    ],
)
def test_only_https(target, url):
    with pytest.raises(InputError, match="Refusing to download"):
        fetch(url, target, sha256=SHA256)
    assert not target.parent.exists()


def test_a_far_server_may_not_send_us_to_this_machine():
    check_address("https://example.com/b", came_from="https://example.com/a")
    with pytest.raises(InputError, match="Refusing"):
        check_address("http://127.0.0.1/b", came_from="https://example.com/a")


def test_two_at_once_transfer_once(target, files):
    with serving(files=files) as server:
        threads = [threading.Thread(target=get, args=(server, target)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(server.seen) == 1
    assert_arrived(target)


def test_a_log_gets_one_line_at_the_start_and_one_at_the_end(target, files, capfd):
    with serving(files=files) as server:
        get(server, target, progress=True, size=len(CONTENT))
        url = f"{server.url}/set.bin"
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [f"Downloading set.bin from {url} (1.0 MB)", "Downloading set.bin: done"]


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="Cannot write"):
        fetch("https://example.com/a", tmp_path / "file" / "a", sha256=SHA256)

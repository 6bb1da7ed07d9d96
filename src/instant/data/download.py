"""One file over HTTPS: continued where it was cut, checked before it gets its name."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from instant.data.files import atomic, locked, replace, sync_folder
from instant.data.progress import Report, reporting
from instant.errors import InputError

_BLOCK = 1 << 18
_TIMEOUT = 30.0  # seconds of silence before a connection counts as cut
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # answers that another try may change


class _Cut(Exception):
    """A transfer that stopped early and may be tried again."""

    def __init__(self, reason: str, *, reached: bool = True) -> None:
        super().__init__(reason)
        self.reached = reached


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str,
    size: int | None = None,
    progress: bool = True,
    attempts: int = 5,
    pause: float = 1.0,
) -> Path:
    """Download `url` to `target` and return it; a file already there is only checked.

    `sha256` is the judge of the bytes. An interrupted download waits in `<target>.part` and is continued by the
    next call. It gives up after `attempts` fruitless tries in a row, the first two `pause` seconds apart, each
    later wait twice as long.
    """
    check_address(url)
    part = _Part(target, url)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target):
            if target.exists():
                got = _digest(target)
                if got == sha256:
                    return target
                raise InputError(f"{target}: expected sha256 {sha256}, got {got}. Delete it and run again.")
            with reporting(f"Downloading {target.name}", f"from {url}", size, progress) as report:
                in_pieces = _transfer(part, size, attempts, pause, report)
                got = _digest(part.path)
                if got != sha256 and in_pieces:  # perhaps of two versions: once more, from the start
                    part.drop()
                    _transfer(part, size, attempts, pause, report)
                    got = _digest(part.path)
                if got != sha256:
                    part.drop()
                    raise InputError(
                        f"{target.name} from {url} has the wrong bytes: expected sha256 {sha256}, got "
                        f"{got}. They were removed and nothing was unpacked. Try again later, or put a good copy "
                        f"in {target.parent}."
                    )
                replace(part.path, target)
                part.drop()
                sync_folder(target.parent)
                return target
    except OSError as error:  # those of the network became _Cut on the way
        raise InputError(
            f"Cannot write {target}: {error.strerror or error}. Free some space or choose another folder."
        ) from error


def check_address(url: str, *, came_from: str | None = None) -> None:
    """Refuse every address but https, and http on this very machine unless another one sent us there."""
    if urlsplit(url).scheme == "https" and urlsplit(url).hostname:
        return
    if urlsplit(url).scheme == "http" and _is_local(url) and (came_from is None or _is_local(came_from)):
        return
    way = f" (redirected from {came_from})" if came_from else ""
    raise InputError(f"Refusing to download {url}{way}: expected an address that starts with https://.")


def _is_local(url: str) -> bool:
    return urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")


class _CheckedRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        check_address(newurl, came_from=req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class _Part:
    """What has arrived of a file, and the mark by which its server tells one version from another."""

    target: Path
    url: str

    @property
    def path(self) -> Path:
        return self.target.with_name(self.target.name + ".part")

    @property
    def note(self) -> Path:
        return self.target.with_name(self.target.name + ".part.json")

    def __len__(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def version(self) -> str | None:
        try:
            noted = json.loads(self.note.read_text("utf-8"))
            return str(noted["version"]) if noted["url"] == self.url and noted["version"] else None
        except (OSError, ValueError, TypeError, KeyError):
            return None  # without it we go on all the same: the checksum has the last word

    def start_over(self, headers: Message) -> None:
        etag = headers.get("ETag", "")
        # RFC 9110: a weak ETag must not be sent in If-Range, it does not promise equal bytes.
        version = etag if etag.startswith('"') else headers.get("Last-Modified")
        self.drop()
        with atomic(self.note, "w") as file:
            json.dump({"url": self.url, "version": version}, file)

    def drop(self) -> None:
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def _transfer(part: _Part, size: int | None, attempts: int, pause: float, report: Report) -> bool:
    """Bring the part to its full length; true when it did not come in one piece."""
    in_pieces = len(part) > 0
    failures, longest, ever_reached = 0, len(part), False
    while True:
        try:
            _receive(part, size, report)
            return in_pieces
        except _Cut as cut:
            in_pieces = True
            ever_reached |= cut.reached
            failures = 1 if len(part) > longest else failures + 1
            longest = max(longest, len(part))
            folder, name = part.target.parent, part.target.name
            if not ever_reached:
                raise InputError(
                    f"Cannot reach {urlsplit(part.url).netloc} to download {name} ({cut}). Go online and "
                    f"run again, or fetch {part.url} elsewhere and put it in {folder}, where the next run "
                    f"finds it."
                ) from cut
            if failures >= attempts:
                raise InputError(
                    f"The download of {name} from {part.url} stopped {failures} times in a row ({cut}). "
                    f"{len(part):,} bytes are kept in {part.path} and the next run goes on from there; or "
                    f"put the whole file in {folder} by hand."
                ) from cut
        time.sleep(pause * 2 ** (failures - 1))


def _receive(part: _Part, size: int | None, report: Report) -> None:
    """One request, its answer appended to the part; returns when the file is whole, else raises `_Cut`."""
    start = len(part)
    if start == size:
        return
    try:
        response = _open(part, start)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and start:
                if _content_range(error.headers) == (None, start):
                    return
                part.drop()
                raise _Cut("the server has a different file now") from error
            if error.code in _PASSING:
                raise _Cut(f"the server answered {error.code} {error.reason}") from error
            raise InputError(
                f"Cannot download {part.target.name}: {part.url} answered {error.code} {error.reason}. If "
                f"you have the file from elsewhere, put it in {part.target.parent}, where the next run "
                f"finds it."
            ) from error
    except (OSError, http.client.HTTPException) as error:
        if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
            raise InputError(
                f"{urlsplit(part.url).netloc} cannot be verified: this Python has no certificates, or a proxy shows "
                "its own. On a Mac run 'Install Certificates.command' in the Python folder of Applications, elsewhere "
                f"set SSL_CERT_FILE; or fetch {part.url} elsewhere and put it in {part.target.parent}."
            ) from error
        raise _Cut(str(getattr(error, "reason", error)) or type(error).__name__, reached=False) from error
    with response:
        if response.status == 206:
            first, total = _content_range(response.headers)
            if first != start:
                part.drop()
                raise _Cut("the server sent another range than asked")
        else:
            start, total = 0, _whole_number(response.headers.get("Content-Length"))
            part.start_over(response.headers)
        _check_room(part, start, total, size)
        _append(response, part, start, total if total is not None else size, report)


def _open(part: _Part, start: int) -> Any:
    request = urllib.request.Request(part.url, headers={"User-Agent": "instant-ssl"})
    if start:
        request.add_header("Range", f"bytes={start}-")
        if version := part.version():
            request.add_header("If-Range", version)
    handlers: list[urllib.request.BaseHandler] = [_CheckedRedirects()]
    if _is_local(part.url):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers).open(request, timeout=_TIMEOUT)


def _check_room(part: _Part, start: int, total: int | None, size: int | None) -> None:
    if size is not None and total is not None and total != size:
        part.drop()
        raise InputError(
            f"{part.url} is not the file we know: expected {size:,} bytes, the server offers {total:,}. "
            f"Try again later, or put a good copy of {part.target.name} in {part.target.parent}."
        )
    needed, free = (total or size or 0) - start, shutil.disk_usage(part.target.parent).free
    if needed > free:
        raise InputError(
            f"{part.target.name} needs {needed:,} more bytes, {part.target.parent} has {free:,} free. "
            f"Free some space or choose another folder."
        )


def _append(response: Any, part: _Part, start: int, total: int | None, report: Report) -> None:
    done = start
    with part.path.open("ab") as file:
        while total is None or done <= total:
            try:
                block = response.read1(_BLOCK)
            except (OSError, http.client.HTTPException) as error:
                raise _Cut(f"the connection was cut after {done:,} bytes") from error
            if not block:
                break
            file.write(block)
            done += len(block)
            report(done)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done < total:
        raise _Cut(f"the connection was cut after {done:,} of {total:,} bytes")


def _content_range(headers: Message) -> tuple[int | None, int | None]:
    """First byte and length of the whole from `bytes 5-9/10` or `bytes */10`."""
    span, _, total = headers.get("Content-Range", "").removeprefix("bytes").strip().partition("/")
    return _whole_number(span.partition("-")[0]), _whole_number(total)


def _whole_number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

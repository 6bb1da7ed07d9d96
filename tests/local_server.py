"""A real HTTP server on this machine that can be as unreliable as the ones out there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """What is served and how; `seen` collects (path, headers) of the requests."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    etag: str | None = None
    cuts: list[int] = field(default_factory=list)  # bytes sent before the n-th answer is cut
    always_cut: int | None = None
    statuses: list[int] = field(default_factory=list)  # of the first answers
    redirects: dict[str, str] = field(default_factory=dict)
    announce: bool = True  # send Content-Length?
    shift: int = 0  # answer ranges that start elsewhere
    pretend: int | None = None  # announce this length instead
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        headers = dict(request.headers.items())
        self.seen.append((request.path, headers))
        if self.statuses:
            request.send_error(self.statuses.pop(0))
            return
        if request.path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[request.path])
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if request.path not in self.files:
            request.send_error(404)
            return
        body = whole = self.files[request.path]
        asked = headers.get("Range")
        same = "If-Range" not in headers or headers["If-Range"] == self.etag
        if asked and self.ranges and same:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(whole):
                request.send_response(416)
                request.send_header("Content-Range", f"bytes */{len(whole)}")
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
            start = max(0, start + self.shift)
            body = whole[start:]
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
        else:
            request.send_response(200)
        if self.etag:
            request.send_header("ETag", self.etag)
        if self.announce:
            length = len(body) if self.pretend is None else self.pretend
            request.send_header("Content-Length", str(length))
        request.end_headers()
        cut = self.cuts.pop(0) if self.cuts else self.always_cut
        request.wfile.write(body if cut is None else body[:cut])


@contextmanager
def serving(**settings: object) -> Iterator[Server]:
    """A server for the length of a block."""
    server = Server(**settings)  # type: ignore[arg-type]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        server.url = f"http://127.0.0.1:{httpd.server_port}"
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            httpd.shutdown()
            thread.join()

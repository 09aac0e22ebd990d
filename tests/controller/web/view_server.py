"""Serves the page over a computed view, with the session, stream and policy of the API server.

`python -m tests.controller.web.view_server --fabric abilene|clos --port 8123` serves until interrupted; the token is
`viewer-token`, the code `once`.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.controller.web.computed_view import ComputedView, abilene, as_json, clos

BUILD = Path(__file__).parents[3] / "controller" / "web" / "build"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types svelte-trusted-html millrace"
)
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    view: ComputedView

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Stay silent."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if not url.path.startswith("/v1/"):
            self._file(url.path)
        elif self.view.is_away:
            self._send(503, {"detail": "away"})
        elif not self._is_signed_in():
            self._send(401, {"detail": "no session: sign in"})
        elif url.path == "/v1/view/me":
            me = {
                "name": "ada",
                "role": "viewer",
                "version": "0.3",
                "build": self.view.build,
                "now_ns": time.time_ns(),
                "may": self.view.may,
            }
            self._send(200, me)
        elif url.path == "/v1/view/stream":
            self._stream(True, {})
        elif url.path == "/v1/view/replay":
            self._stream(False, query)
        else:
            self._send(*self.view.answer(url.path, query))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.headers.get("X-Millrace") != "page":
            self._send(403, {"detail": "no header X-Millrace"})
        elif self.path == "/v1/view/drains" and self._is_signed_in():
            self._send(*self.view.change_drain(asked))
        elif asked.get("code") in self.view.codes or asked.get("token") in self.view.tokens:
            self.view.codes.discard(asked.get("code", ""))
            session = f"s{len(self.view.sessions)}"
            self.view.sessions.add(session)
            self._send(
                200,
                {"name": "ada", "role": "viewer", "expires_ns": 0},
                f"millrace={session}; HttpOnly; SameSite=Strict; Path=/",
            )
        else:
            self._send(401, {"detail": "the code is used up: open the address that `millrace up` prints now"})

    def do_DELETE(self) -> None:
        self.view.sessions.clear()
        self._send(200, {})

    def _is_signed_in(self) -> bool:
        return any(f"millrace={session}" in self.headers.get("cookie", "") for session in self.view.sessions)

    def _file(self, path: str) -> None:
        file = BUILD / ("index.html" if path == "/" else path.lstrip("/"))
        if ".." in path or not file.is_file():
            self._send(404, {"detail": f"no file {path}"})
            return
        self._send_bytes(200, file.read_bytes(), TYPES.get(file.suffix[1:], "application/octet-stream"), "")

    def _send(self, status: int, value: Any, cookie: str = "") -> None:
        self._send_bytes(
            status, as_json(value), "application/json" if status < 400 else "application/problem+json", cookie
        )

    def _send_bytes(self, status: int, body: bytes, media_type: str, cookie: str) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": media_type,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        if cookie:
            self.send_header("Set-Cookie", cookie)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, is_live: bool, query: Mapping[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.millrace.view")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        frames = self.view.frames(
            is_live,
            int(query.get("from", 0)),
            int(query.get("to", 0)),
            float(query.get("speed", 1)),
            lambda: self.view.is_away,
        )
        try:
            for frame in frames:
                self.wfile.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


def serve(view: ComputedView, port: int = 0) -> ThreadingHTTPServer:
    """Serve a view from a thread; the caller ends it by `shutdown` and `server_close`."""
    handler = type("Handler", (_Handler,), {"view": view})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def troubled(fabric: str) -> ComputedView:
    """Return a view with a link down, two without telemetry, one that loses, and one drained."""
    view = ComputedView(abilene() if fabric == "abilene" else clos())
    view.down, view.silent, view.lossy, view.drained = {8, 9}, {20, 21}, {13}, {25}
    stated = BUILD / "build.json"
    view.build = json.loads(stated.read_text())["build"] if stated.is_file() else ""
    return view


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fabric", choices=["abilene", "clos"], default="abilene")
    parser.add_argument("--port", type=int, default=8123)
    options = parser.parse_args()
    serve(troubled(options.fabric), options.port)
    print(f"http://127.0.0.1:{options.port}/#once")
    threading.Event().wait()


if __name__ == "__main__":
    main()

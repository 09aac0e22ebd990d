"""An HTTP double of a Kubernetes API server, as far as the extender uses it; no real one is packaged.

Lists in pages, watches with bookmarks and 410, bindings with their conflicts. This behaviour is checked with the
official client (test_kube_api.py), whose models also parse the requests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client as k8s

from tests.controller.scheduling.extender.kube_objects import plain, read_as

_PATHS = {"/api/v1/nodes": "Node", "/api/v1/pods": "Pod"}


@dataclass(frozen=True)
class WatchEvent:
    """A change of an object: before and after, None if absent."""

    version: int
    kind: str
    before: dict[str, Any] | None
    now: dict[str, Any] | None
    last: dict[str, Any]

    def event(self, asked: dict[str, str]) -> dict[str, Any] | None:
        """Return the event for a watch with a selection: objects that leave it are deleted."""
        was = self.before is not None and _is_selected(self.kind, self.before, asked)
        is_ = self.now is not None and _is_selected(self.kind, self.now, asked)
        if not was and not is_:
            return None
        return {"type": "DELETED" if not is_ else "MODIFIED" if was else "ADDED", "object": self.last}


@dataclass
class KubeDouble:
    """State of the API double, and a log of its changes; thread-safe."""

    token: str = ""
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    events: list[WatchEvent] = field(default_factory=list)
    version: int = 1
    oldest: int = 0
    page: int = 500
    asked: list[str] = field(default_factory=list)
    bindings: list[k8s.V1Binding] = field(default_factory=list)
    fail: dict[str, int] = field(default_factory=dict)
    """Statuses to answer with instead, once each, by method and path."""
    lose_answers: bool = False
    """Bind, and end the connection without an answer."""
    ended: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, model: k8s.V1Node | k8s.V1Pod) -> None:
        """Create or change an object."""
        with self.changed:
            self._store(plain(model))

    def delete(self, kind: str, name: str) -> None:
        with self.changed:
            before = self.objects.pop((kind, name))
            self.version += 1
            last = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
            self.events.append(WatchEvent(self.version, kind, before, None, last))
            self.changed.notify_all()

    def forget_history(self) -> None:
        """End running watches, and answer older ones with "too old"."""
        with self.changed:
            self.version += 1
            self.oldest, self.events = self.version, []
            self.changed.notify_all()

    def later_than(self, version: int) -> list[WatchEvent] | None:
        """Wait for changes since a version and return them, perhaps none; None if that version is forgotten."""
        with self.changed:
            if not self.ended and self.version == version:
                self.changed.wait(1)
            if self.ended or self.oldest > version:
                return None
            return [told for told in self.events if told.version > version]

    def pod(self, name: str) -> dict[str, Any]:
        with self.changed:
            return self.objects["Pod", f"default/{name}"]

    def _store(self, data: dict[str, Any]) -> None:
        kind, key = data["kind"], _key(data)
        self.version += 1
        data["metadata"]["resourceVersion"] = str(self.version)
        before, self.objects[kind, key] = self.objects.get((kind, key)), data
        self.events.append(WatchEvent(self.version, kind, before, data, data))
        self.changed.notify_all()

    def bind(self, name: str, binding: k8s.V1Binding) -> tuple[int, dict[str, Any]]:
        with self.changed:
            self.bindings.append(binding)
            pod = self.objects.get(("Pod", name))
            if pod is None:
                return 404, _status(404, "NotFound", f'pods "{name.split("/")[1]}" not found')
            if binding.metadata.uid and binding.metadata.uid != pod["metadata"]["uid"]:
                return 409, _status(409, "Conflict", "Precondition failed: UID in precondition differs")
            if pod["spec"].get("nodeName"):
                return 409, _status(409, "Conflict", f"pod {name} is already assigned to node")
            assert (binding.target.kind, binding.target.api_version) == ("Node", "v1")
            data = json.loads(json.dumps(pod))
            data["spec"]["nodeName"] = binding.target.name
            self._store(data)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _key(data: dict[str, Any]) -> str:
    namespace = data["metadata"].get("namespace")
    return f"{namespace}/{data['metadata']['name']}" if namespace else data["metadata"]["name"]


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    made = k8s.V1Status(api_version="v1", kind="Status", status="Failure", reason=reason, message=message, code=code)
    return dict(plain(made))


def _is_selected(kind: str, data: dict[str, Any], asked: dict[str, str]) -> bool:
    """Return whether an object matches a field selector; only those of pods used here."""
    for part in filter(None, asked.get("fieldSelector", "").split(",")):
        name, _, value = part.partition("!=")
        assert kind == "Pod"
        fields = {"spec.nodeName": data["spec"].get("nodeName", ""), "status.phase": data["status"].get("phase", "")}
        if fields[name] == value:
            return False
    return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def double(self) -> KubeDouble:
        return self.server.double  # type: ignore[attr-defined,no-any-return]

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(where.query, keep_blank_values=True).items()}
        if not self._may(where.path):
            return
        if (kind := _PATHS.get(where.path)) is None:
            self._one(where.path)
        elif asked.get("watch") in {"1", "true", "True"}:
            self._watch(kind, asked)
        else:
            self._list(kind, asked)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self._may(self.path):
            return
        parts = self.path.strip("/").split("/")
        assert [*parts[:3], parts[4], parts[6]] == ["api", "v1", "namespaces", "pods", "binding"], self.path
        code, data = self.double.bind(f"{parts[3]}/{parts[5]}", read_as(body, "V1Binding"))
        if self.double.lose_answers:
            self.close_connection = True
        else:
            self._say(code, data)

    def _may(self, path: str) -> bool:
        double = self.double
        double.asked.append(f"{self.command} {self.path}")
        if double.token and self.headers.get("authorization") != f"Bearer {double.token}":
            self._say(401, _status(401, "Unauthorized", "Unauthorized"))
            return False
        if (code := double.fail.pop(f"{self.command} {path}", 0)) != 0:
            self._say(code, _status(code, "InternalError", "as the test wants it"))
            return False
        return True

    def _one(self, path: str) -> None:
        parts = path.strip("/").split("/")
        pod = self.double.objects.get(("Pod", f"{parts[3]}/{parts[5]}"))
        if pod is None:
            self._say(404, _status(404, "NotFound", "not found"))
        else:
            self._say(200, pod)

    def _list(self, kind: str, asked: dict[str, str]) -> None:
        double = self.double
        with double.changed:
            all_ = [data for (of, _), data in sorted(double.objects.items()) if of == kind]
            version = str(double.version)
        matches = [data for data in all_ if _is_selected(kind, data, asked)]
        start, limit = int(asked.get("continue", "0")), min(int(asked.get("limit", "500")), double.page)
        rest = len(matches) - start - limit
        metadata = {"resourceVersion": version} | ({"continue": str(start + limit)} if rest > 0 else {})
        items = matches[start : start + limit]
        self._say(200, {"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata, "items": items})

    def _watch(self, kind: str, asked: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in self._events(kind, asked):
                data = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _events(self, kind: str, asked: dict[str, str]) -> Iterator[dict[str, Any]]:
        seen = int(asked["resourceVersion"])
        if seen < self.double.oldest:
            yield {"type": "ERROR", "object": _status(410, "Expired", "too old resource version")}
            return
        if asked.get("allowWatchBookmarks") == "true":
            bookmark = {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": str(seen)}}
            yield {"type": "BOOKMARK", "object": bookmark}
        while (new := self.double.later_than(seen)) is not None:
            for told in new:
                seen = told.version
                if told.kind == kind and (event := told.event(asked)) is not None:
                    yield event

    def _say(self, code: int, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def kube_double(token: str = "") -> Iterator[KubeDouble]:
    """Serve a double on loopback until the context ends."""
    double = KubeDouble(token)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.double = double  # type: ignore[attr-defined]
    double.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield double
    finally:
        with double.changed:
            double.ended = True
            double.changed.notify_all()
        server.shutdown()
        server.server_close()
        thread.join()

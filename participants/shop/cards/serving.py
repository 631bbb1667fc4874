"""Serves the card provider over HTTP/1.1 with JSON.

    POST /authorizations  customer_id, minor_units, currency_code, statement_text, reference -> authorization_id
    POST /voids           authorization_id or authorization_key, reference -> authorization_id, state
    POST /captures        authorization_id, reference -> charge_id
    POST /refunds         charge_id, reference -> refund_id
    GET  /authorizations/KEY  the authorisation that was made with a key -> authorization_id, state

Every POST has the header `Idempotency-Key`. An answer that was given before says so with `Idempotent-Replayed: true`.
And for planted faults: `GET /held` lists what is held, `POST /let-go` lets it go.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, cast

from shop.cards.provider import Reply

if TYPE_CHECKING:
    from shop.cards.faults import PlantedFaults
    from shop.cards.provider import CardProvider

BODY_LIMIT_BYTES = 64 * 1024


class CardServer(ThreadingHTTPServer):
    """Answers on the loopback interface, each connection in a thread that goes with the process.

    Args:
        provider: what does the work.
        faults: what happens to it.
        port: where it listens; 0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, provider: CardProvider, faults: PlantedFaults, *, port: int = 0) -> None:
        self.provider, self.faults = provider, faults
        super().__init__(("127.0.0.1", port), _Requests)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.server_port


class _Requests(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float | None] = 60.0

    def do_GET(self) -> None:
        place = cast("CardServer", self.server)
        what, _, key = self.path.removeprefix("/").partition("/")
        if what == "held":
            return self._send(Reply(status=200, fields={"held": list(place.faults.held)}))
        if what == "authorizations" and key:
            return self._send(place.provider.find(key))
        return self._send(_refused(404, "no_such_thing", f"there is nothing to get at {self.path}"))

    def do_POST(self) -> None:
        place, what = cast("CardServer", self.server), self.path.removeprefix("/")
        fields = self._fields()
        if fields is None:
            return self._send(_refused(400, "bad_request", f"send a JSON object of at most {BODY_LIMIT_BYTES} bytes"))
        if what == "let-go":
            place.faults.let_go()
            return self._send(Reply(status=200, fields={}))
        place.faults.happen(what, "before", fields)
        reply = place.provider.post(what, fields, key=self.headers.get("Idempotency-Key", ""))
        place.faults.happen(what, "after", fields)
        return self._send(reply)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Says nothing: what it did stands in the books."""

    def _fields(self) -> dict[str, object] | None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > BODY_LIMIT_BYTES:
            self.close_connection = True  # what it sent is still on its way, and would be read as the next request
            return None
        try:
            # `object` is what JSON gives here: every field's type is looked at where it is used.
            fields = cast("object", json.loads(self.rfile.read(int(length)) or b"{}"))
        except ValueError:
            return None
        return cast("dict[str, object]", fields) if isinstance(fields, dict) else None

    def _send(self, reply: Reply) -> None:
        body = json.dumps(dict(reply.fields)).encode()
        try:
            self.send_response(HTTPStatus(reply.status))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if reply.repeated:
                self.send_header("Idempotent-Replayed", "true")
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # whoever asked is gone; what was done for it stands


def _refused(status: int, code: str, message: str) -> Reply:
    return Reply(status=status, fields={"code": code, "message": message})

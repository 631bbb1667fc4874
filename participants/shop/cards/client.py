"""How the shop speaks to its card provider: every request with an idempotency key, and each answer read for what it
proves.

The provider is reached through a `Wire`: over HTTP, or, where a test has it in its own process, without any.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
from typing import TYPE_CHECKING, Protocol, cast

from shop.cards.provider import Reply

if TYPE_CHECKING:
    from shop.cards.provider import CardProvider, Fields

REFUSALS = frozenset({402, 409, 410})
REQUEST_TIMEOUT_S = 10.0
ANSWER_LIMIT_BYTES = 64 * 1024


class CardRefusedError(Exception):
    """The provider says no: nothing was done under this key, and nothing ever will be.

    Attributes:
        code: for programs, such as "card_declined".
        message: for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class CardsUnknownError(Exception):
    """No answer that proves anything: it was done or not. Ask again with the same key."""


class Wire(Protocol):
    """The way to the provider and back."""

    async def get(self, path: str) -> Reply:
        """Ask for what is there. Safe to repeat.

        Raises:
            CardsUnknownError: no answer came.
        """
        ...

    async def post(self, what: str, fields: Fields, *, key: str) -> Reply:
        """Ask for something to be done. Safe to repeat with the same key.

        Raises:
            CardsUnknownError: no answer came.
        """
        ...


class CardClient:
    """The provider's operations. All but `find` are safe to repeat with the same key, and only with that."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def authorize(
        self,
        *,
        key: str,
        customer_id: str,
        minor_units: int,
        currency_code: str,
        statement_text: str,
        reference: str,
    ) -> str:
        """Set money aside on a customer's card; answers the authorisation's id.

        Raises:
            CardRefusedError: "card_declined", "amount_invalid", or "key_sealed" where the key was voided before.
            CardsUnknownError: it may have been done.
        """
        fields: Fields = {
            "customer_id": customer_id,
            "minor_units": minor_units,
            "currency_code": currency_code,
            "statement_text": statement_text,
            "reference": reference,
        }
        return await self._post("authorizations", fields, key=key, gives="authorization_id")

    async def void(self, *, key: str, authorization_key: str, reference: str, authorization_id: str = "") -> str:
        """Give back what was set aside; answers the authorisation's id.

        It is found by its id, or, where that is empty, by the key that it was asked for with. Where nothing is there,
        the answer is empty, and nothing will ever be done with that key.

        Raises:
            CardRefusedError: "already_captured".
            CardsUnknownError: it may have been done.
        """
        fields: Fields = {
            "authorization_id": authorization_id,
            "authorization_key": authorization_key,
            "reference": reference,
        }
        return await self._post("voids", fields, key=key, gives="authorization_id")

    async def capture(self, *, key: str, authorization_id: str, reference: str) -> str:
        """Take what was set aside; answers the charge's id.

        Raises:
            CardRefusedError: "not_authorized".
            CardsUnknownError: it may have been done.
        """
        fields: Fields = {"authorization_id": authorization_id, "reference": reference}
        return await self._post("captures", fields, key=key, gives="charge_id")

    async def refund(self, *, key: str, charge_id: str, reference: str) -> str:
        """Give back what was taken; answers the refund's id.

        Raises:
            CardRefusedError: "not_charged", "already_refunded".
            CardsUnknownError: it may have been done.
        """
        fields: Fields = {"charge_id": charge_id, "reference": reference}
        return await self._post("refunds", fields, key=key, gives="refund_id")

    async def find(self, authorization_key: str) -> str | None:
        """The id of the authorisation that was made with a key; None: there is none yet.

        Raises:
            CardsUnknownError: the provider didn't say.
        """
        reply = await self._wire.get(f"authorizations/{authorization_key}")
        if (reply.status, reply.fields.get("code")) == (404, "not_found"):
            return None
        return _read(reply, "authorization_id")

    async def _post(self, what: str, fields: Fields, *, key: str, gives: str) -> str:
        return _read(await self._wire.post(what, fields, key=key), gives)


class InProcess:
    """The way to a provider in this very process."""

    def __init__(self, provider: CardProvider) -> None:
        self._provider = provider

    async def get(self, path: str) -> Reply:
        """See `Wire`."""
        return self._provider.find(path.partition("/")[2])

    async def post(self, what: str, fields: Fields, *, key: str) -> Reply:
        """See `Wire`."""
        return self._provider.post(what, fields, key=key)


class Http:
    """The way over HTTP/1.1, a connection for each request.

    Args:
        address: HOST:PORT.
        timeout_s: how long an answer is waited for.
    """

    def __init__(self, address: str, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._address, self._timeout_s = address, timeout_s

    async def get(self, path: str) -> Reply:
        """See `Wire`."""
        return await self._ask(f"GET /{path} HTTP/1.1\r\nHost: {self._address}\r\nConnection: close\r\n\r\n".encode())

    async def post(self, what: str, fields: Fields, *, key: str) -> Reply:
        """See `Wire`."""
        body = json.dumps(dict(fields)).encode()
        head = (
            f"POST /{what} HTTP/1.1\r\nHost: {self._address}\r\nConnection: close\r\nIdempotency-Key: {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return await self._ask(head.encode() + body)

    async def _ask(self, request: bytes) -> Reply:
        host, _, port = self._address.rpartition(":")
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = await asyncio.open_connection(host, int(port), limit=ANSWER_LIMIT_BYTES)
                try:
                    writer.write(request)
                    await writer.drain()
                    return await _answer(reader)
                finally:
                    writer.close()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, http.client.HTTPException) as problem:
            raise CardsUnknownError(f"the card provider at {self._address} gave no answer: {problem!r}") from problem


async def _answer(reader: asyncio.StreamReader) -> Reply:
    head = await reader.readuntil(b"\r\n\r\n")
    status, _, headers = head.partition(b"\r\n")
    read = http.client.parse_headers(io.BytesIO(headers))
    body = await reader.readexactly(int(read.get("Content-Length", "0")))
    fields = cast("object", json.loads(body))
    if not isinstance(fields, dict):
        raise CardsUnknownError(f"the card provider answered {body[:100]!r}, which is no JSON object")
    return Reply(
        status=int(status.split()[1]),
        fields=cast("dict[str, object]", fields),
        repeated=read.get("Idempotent-Replayed") == "true",
    )


def _read(reply: Reply, name: str) -> str:
    """A field of an answer that says yes."""
    code, message = str(reply.fields.get("code", "")), str(reply.fields.get("message", ""))
    # One without a code is no word of the provider's: something on the way said it, which knows nothing of the key.
    if reply.status in REFUSALS and code not in {"", "key_reused"}:
        raise CardRefusedError(code, message)
    if reply.status not in {200, 201}:
        raise CardsUnknownError(f"the card provider answered {reply.status} {code}: {message}")
    return str(reply.fields[name])

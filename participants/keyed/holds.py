"""A planted fault: the effect is made, but the first attempt's reply is held back for a while."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

_HOLD = re.compile(r"(?P<method>\w+):(?P<field>\w+)=(?P<value>[^:]*):(?P<seconds>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHold:
    """Which replies are held back: those of a method whose request has this value in this field."""

    method: str
    field: str
    value: str
    seconds: float

    @classmethod
    def parse(cls, text: str) -> ReplyHold:
        """Reads `METHOD:FIELD=VALUE:SECONDS`, for example `Authorize:customer_id=carol:3`.

        Raises:
            ValueError: the text has another shape.
        """
        found = _HOLD.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is not a hold: write METHOD:FIELD=VALUE:SECONDS, as in Authorize:customer_id=carol:3"
            )
        return cls(method=found["method"], field=found["field"], value=found["value"], seconds=float(found["seconds"]))

    def applies_to(self, method: str, request: Message) -> bool:
        """Whether the reply to this request is held back."""
        return method == self.method and str(getattr(request, self.field, None)) == self.value


async def hold_reply(holds: Sequence[ReplyHold], method: str, request: Message, *, attempt: int) -> None:
    """Waits as long as the first hold that applies says; later attempts are answered at once."""
    if attempt > 1:
        return
    for hold in holds:
        if hold.applies_to(method, request):
            await asyncio.sleep(hold.seconds)
            return

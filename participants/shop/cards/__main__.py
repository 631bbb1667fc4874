"""Runs the card provider as a process: `python -m shop.cards --data DIR`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from shop.cards.books import Books
from shop.cards.faults import SHAPE, PlantedFault, PlantedFaults
from shop.cards.provider import CARD_LIMIT_MINOR_UNITS, CardProvider
from shop.cards.serving import CardServer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line and serves until the process is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m shop.cards", description="Runs a fake card provider.")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of its books, cards.db")
    parser.add_argument("--port", type=int, default=0, help="port on the loopback interface (default: a free one)")
    parser.add_argument(
        "--limit", type=int, default=CARD_LIMIT_MINOR_UNITS, metavar="MINOR_UNITS", help="decline above this"
    )
    parser.add_argument(
        "--fault", type=_fault, action="append", default=[], metavar=SHAPE, help="a planted fault; may be repeated"
    )
    chosen = parser.parse_args(arguments)
    books = Books(chosen.data / "cards.db")
    provider = CardProvider(books, card_limit_minor_units=chosen.limit)
    with CardServer(provider, PlantedFaults.of(chosen.fault), port=chosen.port) as server:
        stopping = threading.Thread(target=server.shutdown)

        def stop(_: int, __: FrameType | None) -> None:
            stopping.start()

        signal.signal(signal.SIGTERM, stop)
        sys.stdout.write(f"listening on 127.0.0.1:{server.port}\n")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.05)
    books.close()


def _fault(text: str) -> PlantedFault:
    try:
        return PlantedFault.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    main()

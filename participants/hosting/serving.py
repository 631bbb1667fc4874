"""Runs one participant as a process: its command line, its database, its server."""

from __future__ import annotations

import argparse
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amends import ParticipantServer
from hosting.database import open_database
from hosting.holds import HeldReplies, ReplyHold
from hosting.journal import Journal
from hosting.spans import exported_spans

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from sqlalchemy import Engine, MetaData

    from hosting.database import Database


def _leave_as_it_is(_: Engine) -> None:
    """A database that begins empty."""


@dataclass(frozen=True, slots=True)
class Service:
    """What it takes to run a service: its tables, what answers its calls, and what a new database begins with."""

    tables: MetaData
    servicer: Callable[[Database], object]
    prepare: Callable[[Engine], None] = _leave_as_it_is


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a participant runs.

    Attributes:
        coordinator: where it announces itself, as HOST:PORT.
        port: where it listens on the loopback interface; 0 takes a free one.
        data: the folder of its database.
        holds: planted faults, see `hosting.holds`.
    """

    coordinator: str
    port: int
    data: Path
    holds: Sequence[ReplyHold] = ()


def database_path(data: Path, name: str) -> Path:
    """Where a participant keeps its database."""
    return data / f"{name}.db"


async def run(name: str, service: Service, place: Place) -> None:
    """Serves as the participant of this name until the process is told to stop."""
    with exported_spans(name):
        async with hosted(name, service, place) as server:
            await server.serve()


@asynccontextmanager
async def hosted(name: str, service: Service, place: Place) -> AsyncGenerator[ParticipantServer]:
    """The server of one participant, not yet started, on its database."""
    database = open_database(database_path(place.data, name), service.tables)
    try:
        service.prepare(database.engine)
        around = (Journal(database.engine), HeldReplies(place.holds))
        server = ParticipantServer(name, coordinator=place.coordinator, port=place.port, interceptors=around)
        server.add(service.servicer(database))
        yield server
    finally:
        await database.close()


def add_place(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say where the participant runs; `place_of` reads them."""
    parser.add_argument("--coordinator", required=True, metavar="HOST:PORT", help="where to announce the service")
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of the service's database")
    parser.add_argument("--port", type=int, default=0, help="port on the loopback interface (default: a free one)")
    parser.add_argument(
        "--hold-reply",
        type=_hold,
        action="append",
        default=[],
        metavar="METHOD:FIELD=VALUE:SECONDS",
        help="make the effect, but hold the first attempt's reply back; may be repeated",
    )


def place_of(chosen: argparse.Namespace) -> Place:
    """Where the command line says that the participant runs."""
    return Place(coordinator=chosen.coordinator, port=chosen.port, data=chosen.data, holds=chosen.hold_reply)


def _hold(text: str) -> ReplyHold:
    try:
        return ReplyHold.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error

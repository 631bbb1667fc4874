"""The commands that do something to a saga: `saga abort`, `saga run-now`, `saga terminate`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from amends.cli.connection import CALL_TIMEOUT_S, DEFAULT_COORDINATOR, Coordinator, operator_at, sagas_at
from amends.cli.formats import cut
from amends.cli.people import Reason, login_name
from amends.cli.show import saga_state
from amends.v1.operator_service_pb2 import RunSagaNowRequest, TerminateSagaRequest
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import AbortSagaRequest

SagaId = Annotated[str, typer.Argument(metavar="ID", help="The saga's id.", show_default=False)]


def abort(saga_id: SagaId, reason: Reason, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Have a saga rolled back, if it isn't past its point of no return; safe to repeat."""

    async def send() -> Saga:
        async with sagas_at(coordinator) as sagas:
            request = AbortSagaRequest(saga_id=saga_id, reason=reason, claimed_actor=login_name())
            return (await sagas.AbortSaga(request, timeout=CALL_TIMEOUT_S)).saga

    _tell(asyncio.run(send()), "abort accepted")


def run_now(saga_id: SagaId, reason: Reason = "", coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Have tried now whatever a saga waits to try again."""

    async def send() -> Saga:
        async with operator_at(coordinator) as operator:
            request = RunSagaNowRequest(saga_id=saga_id, reason=reason, claimed_actor=login_name())
            return (await operator.RunSagaNow(request, timeout=CALL_TIMEOUT_S)).saga

    saga = asyncio.run(send())
    stands_still = saga.state == Saga.STATE_COMPENSATION_FAILED
    _tell(saga, "nothing of it waits to be tried again, only for a person" if stands_still else "due now")


def terminate(saga_id: SagaId, reason: Reason, coordinator: Coordinator = DEFAULT_COORDINATOR) -> None:
    """Stop a saga where it is: from then on only what a person retries is called."""

    async def send() -> Saga:
        async with operator_at(coordinator) as operator:
            request = TerminateSagaRequest(saga_id=saga_id, reason=reason, claimed_actor=login_name())
            return (await operator.TerminateSaga(request, timeout=CALL_TIMEOUT_S)).saga

    _tell(asyncio.run(send()), "terminated")


def _tell(saga: Saga, what: str) -> None:
    saga_id = cut(saga.saga_id)
    typer.echo(f"saga {saga_id}: {what}; it is {saga_state(saga)}")
    if saga.attention_required:
        typer.echo(f"what is left to decide: `amends deadletter list --saga {saga_id}`")

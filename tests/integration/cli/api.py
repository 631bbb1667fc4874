"""A saga service over real gRPC that answers from dictionaries: enough of the public API for the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Self, TypeVar

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo  # type: ignore[import-untyped]  # has no py.typed
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # has no py.typed

from amends.v1.operator_service_pb2 import (
    ListDeadLettersRequest,
    ListDeadLettersResponse,
    ResolveDeadLetterRequest,
    ResolveDeadLetterResponse,
    RetryDeadLetterRequest,
    RetryDeadLetterResponse,
    RunSagaNowRequest,
    RunSagaNowResponse,
    TerminateSagaRequest,
    TerminateSagaResponse,
)
from amends.v1.saga_definition_pb2 import SagaDefinition
from amends.v1.saga_pb2 import Saga
from amends.v1.saga_service_pb2 import (
    AbortSagaRequest,
    AbortSagaResponse,
    GetSagaDefinitionRequest,
    GetSagaDefinitionResponse,
    GetSagaRequest,
    GetSagaResponse,
    ListSagasRequest,
    ListSagasResponse,
    StartSagaRequest,
    StartSagaResponse,
    WaitSagaRequest,
    WaitSagaResponse,
    WatchSagaRequest,
    WatchSagaResponse,
)
from shop.orders.v1.orders_pb2 import DESCRIPTOR, OrderPlaced, PlaceOrder

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class SagaApi:
    """The service. Tests put sagas and definitions in, and read what was asked.

    `changes` are what a stream tells of a saga, one after the other; None breaks it off. Then it ends, unless the saga
    is in `goes_on`: its stream stays open for as long as somebody reads it.
    `refusals` holds, by method name, what is answered instead.
    """

    def __init__(self) -> None:
        self.definitions = {"order": order_definition()}
        self.sagas: dict[str, Saga] = {}
        self.started: list[StartSagaRequest] = []
        self.changes: dict[str, list[Saga | None]] = {}
        self.goes_on: set[str] = set()
        self.watched: list[WatchSagaRequest] = []
        self.listed: list[ListSagasRequest] = []
        self.dead_letters = ListDeadLettersResponse()
        self.verbs: list[Message] = []
        self.refusals: dict[str, Callable[[grpc.ServicerContext], None]] = {}
        self.waits_before_end = 0
        self.page_size = 1_000
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    "amends.v1.SagaService",
                    {
                        "GetSagaDefinition": self._method(self._definition, GetSagaDefinitionRequest),
                        "StartSaga": self._method(self._start, StartSagaRequest),
                        "GetSaga": self._method(self._get, GetSagaRequest),
                        "WaitSaga": self._method(self._wait, WaitSagaRequest),
                        "ListSagas": self._method(self._list, ListSagasRequest),
                        "WatchSaga": self._stream(),
                        "AbortSaga": self._method(self._abort, AbortSagaRequest),
                    },
                ),
                grpc.method_handlers_generic_handler(
                    "amends.v1.OperatorService",
                    {
                        "ListDeadLetters": self._method(self._letters, ListDeadLettersRequest),
                        "RetryDeadLetter": self._method(self._retry, RetryDeadLetterRequest),
                        "ResolveDeadLetter": self._method(self._resolve, ResolveDeadLetterRequest),
                        "RunSagaNow": self._method(self._run_now, RunSagaNowRequest),
                        "TerminateSaga": self._method(self._terminate, TerminateSagaRequest),
                    },
                ),
            ]
        )
        self.address = f"localhost:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def _method(
        self, answer: Callable[[Request, grpc.ServicerContext], Response], request: type[Request]
    ) -> grpc.RpcMethodHandler[Request, Response]:
        def guarded(received: Request, context: grpc.ServicerContext) -> Response:
            name = request.DESCRIPTOR.name.removesuffix("Request")
            if name in self.refusals:
                self.refusals[name](context)
            return answer(received, context)

        return grpc.unary_unary_rpc_method_handler(
            guarded, request_deserializer=request.FromString, response_serializer=lambda made: made.SerializeToString()
        )

    def _definition(
        self, request: GetSagaDefinitionRequest, context: grpc.ServicerContext
    ) -> GetSagaDefinitionResponse:
        if request.name not in self.definitions:
            refuse(context, grpc.StatusCode.NOT_FOUND, "DEFINITION_NOT_FOUND", f"no definition named {request.name}")
        return GetSagaDefinitionResponse(definition=self.definitions[request.name])

    def _start(self, request: StartSagaRequest, _: grpc.ServicerContext) -> StartSagaResponse:
        self.started.append(request)
        saga_id = request.saga_id or "01890a5d-ac96-774b-bcce-b302099a8057"
        begun = saga_id not in self.sagas
        if begun:
            self.sagas[saga_id] = Saga(saga_id=saga_id, definition_name="order", state=Saga.STATE_RUNNING)
        return StartSagaResponse(saga=self.sagas[saga_id], started=begun)

    def _get(self, request: GetSagaRequest, context: grpc.ServicerContext) -> GetSagaResponse:
        if request.saga_id not in self.sagas:
            refuse(context, grpc.StatusCode.NOT_FOUND, "SAGA_NOT_FOUND", f"no saga has the id {request.saga_id}")
        return GetSagaResponse(saga=self.sagas[request.saga_id])

    def _wait(self, request: WaitSagaRequest, _: grpc.ServicerContext) -> WaitSagaResponse:
        saga = Saga()
        saga.CopyFrom(self.sagas[request.saga_id])
        if self.waits_before_end:
            self.waits_before_end -= 1
            saga.state = Saga.STATE_RUNNING
        return WaitSagaResponse(saga=saga)

    def _list(self, request: ListSagasRequest, _: grpc.ServicerContext) -> ListSagasResponse:
        self.listed.append(request)
        begin = int(request.page_token or 0)
        end = begin + min(request.page_size, self.page_size)
        chosen = [saga for saga in self.sagas.values() if not request.states or saga.state in request.states]
        return ListSagasResponse(sagas=chosen[begin:end], next_page_token=str(end) if end < len(chosen) else "")

    def _stream(self) -> grpc.RpcMethodHandler[WatchSagaRequest, WatchSagaResponse]:
        def answer(request: WatchSagaRequest, context: grpc.ServicerContext) -> Iterator[WatchSagaResponse]:
            self.watched.append(request)
            if "WatchSaga" in self.refusals:
                self.refusals.pop("WatchSaga")(context)
            for change in self.changes.get(request.saga_id, []):
                if change is None:
                    self.changes[request.saga_id] = self.changes[request.saga_id][1:]
                    context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
                yield WatchSagaResponse(saga=change)
                self.changes[request.saga_id] = self.changes[request.saga_id][1:]
            if request.saga_id in self.goes_on:
                left = Event()
                if context.add_callback(left.set):
                    left.wait()

        return grpc.unary_stream_rpc_method_handler(
            answer,
            request_deserializer=WatchSagaRequest.FromString,
            response_serializer=lambda made: made.SerializeToString(),
        )

    def _letters(self, request: ListDeadLettersRequest, _: grpc.ServicerContext) -> ListDeadLettersResponse:
        self.verbs.append(request)
        return self.dead_letters

    def _abort(self, request: AbortSagaRequest, _: grpc.ServicerContext) -> AbortSagaResponse:
        return AbortSagaResponse(saga=self._done(request, request.saga_id))

    def _retry(self, request: RetryDeadLetterRequest, _: grpc.ServicerContext) -> RetryDeadLetterResponse:
        return RetryDeadLetterResponse(saga=self._done(request, request.dead_letter_id.partition("/")[0]))

    def _resolve(self, request: ResolveDeadLetterRequest, _: grpc.ServicerContext) -> ResolveDeadLetterResponse:
        return ResolveDeadLetterResponse(saga=self._done(request, request.dead_letter_id.partition("/")[0]))

    def _run_now(self, request: RunSagaNowRequest, _: grpc.ServicerContext) -> RunSagaNowResponse:
        return RunSagaNowResponse(saga=self._done(request, request.saga_id))

    def _terminate(self, request: TerminateSagaRequest, _: grpc.ServicerContext) -> TerminateSagaResponse:
        return TerminateSagaResponse(saga=self._done(request, request.saga_id))

    def _done(self, request: Message, saga_id: str) -> Saga:
        self.verbs.append(request)
        return self.sagas[saga_id]


def refuse(
    context: grpc.ServicerContext,
    code: grpc.StatusCode,
    reason: str,
    message: str,
    fields: dict[str, str] | None = None,
) -> None:
    """Answer an error as a coordinator does: with its reason and the standard details."""
    status = Status(code=code.value[0], message=message)
    details: list[Message] = [ErrorInfo(reason=reason, domain="amends")]
    if fields:
        faults = [BadRequest.FieldViolation(field=name, description=said) for name, said in fields.items()]
        details.append(BadRequest(field_violations=faults))
    for detail in details:
        packed = Any()
        packed.Pack(detail)
        status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


def order_definition() -> SagaDefinition:
    """A definition that carries its types, imported files behind the files that import them."""
    return SagaDefinition(
        name="order",
        version="0123456789abcdef",
        input_type=PlaceOrder.DESCRIPTOR.full_name,
        output_type=OrderPlaced.DESCRIPTOR.full_name,
        descriptors=FileDescriptorSet(file=_files(DESCRIPTOR)),
    )


def _files(file: FileDescriptor) -> list[FileDescriptorProto]:
    made = FileDescriptorProto()
    file.CopyToProto(made)
    return [made, *(each for imported in file.dependencies for each in _files(imported))]

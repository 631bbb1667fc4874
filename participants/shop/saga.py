"""The order saga: what the shop does when somebody orders, and how each step of it is undone."""

from __future__ import annotations

from datetime import timedelta

from amends import Saga, method
from shop.inventory.v1.inventory_pb2 import ReleaseRequest, ReleaseResponse, ReserveRequest, ReserveResponse
from shop.inventory.v1.inventory_pb2_grpc import InventoryServiceServicer
from shop.notifications.v1.notifications_pb2 import SendRequest, SendResponse
from shop.notifications.v1.notifications_pb2_grpc import NotificationsServiceServicer
from shop.orders.v1.orders_pb2 import (
    CancelOrderRequest,
    CancelOrderResponse,
    CreateOrderRequest,
    CreateOrderResponse,
    OrderPlaced,
    PlaceOrder,
)
from shop.orders.v1.orders_pb2_grpc import OrdersServiceServicer
from shop.payments.v1.payments_pb2 import (
    AuthorizeRequest,
    AuthorizeResponse,
    CaptureRequest,
    CaptureResponse,
    VoidRequest,
    VoidResponse,
)
from shop.payments.v1.payments_pb2_grpc import PaymentsServiceServicer
from shop.shipping.v1.shipping_pb2 import ShipRequest, ShipResponse
from shop.shipping.v1.shipping_pb2_grpc import ShippingServiceServicer

CreateOrder = method(OrdersServiceServicer.CreateOrder, CreateOrderRequest, CreateOrderResponse)
CancelOrder = method(OrdersServiceServicer.CancelOrder, CancelOrderRequest, CancelOrderResponse)
Reserve = method(InventoryServiceServicer.Reserve, ReserveRequest, ReserveResponse)
Release = method(InventoryServiceServicer.Release, ReleaseRequest, ReleaseResponse)
Authorize = method(PaymentsServiceServicer.Authorize, AuthorizeRequest, AuthorizeResponse)
Void = method(PaymentsServiceServicer.Void, VoidRequest, VoidResponse)
Capture = method(PaymentsServiceServicer.Capture, CaptureRequest, CaptureResponse)
Ship = method(ShippingServiceServicer.Ship, ShipRequest, ShipResponse)
Send = method(NotificationsServiceServicer.Send, SendRequest, SendResponse)

order = Saga("order", input=PlaceOrder, output=OrderPlaced, timeout=timedelta(minutes=5))
wanted = order.input

# Every compensation finds its work without the action's response: the barrier knows it, so a lost one costs nothing.
create_order = order.step(
    "create_order",
    CreateOrder(customer_id=wanted.customer_id, sku=wanted.sku, quantity=wanted.quantity, total=wanted.total),
)
create_order.compensated_by(CancelOrder(order_id=create_order.response.order_id))

reserve = order.step("reserve", Reserve(sku=wanted.sku, quantity=wanted.quantity))
reserve.compensated_by(Release(reservation_id=reserve.response.reservation_id))

authorize = order.step(
    "authorize", Authorize(customer_id=wanted.customer_id, amount=wanted.total, statement_text="SHOP")
)
authorize.compensated_by(Void(authorization_id=authorize.response.authorization_id, reason="order failed"))

ship = order.pivot(
    "ship",
    Ship(
        order_id=create_order.response.order_id,
        reservation_id=reserve.response.reservation_id,
        country=wanted.country,
    ),
)

capture = order.retriable("capture", Capture(authorization_id=authorize.response.authorization_id))

notify = order.retriable(
    "notify", Send(email=wanted.email, template="shipped", order_id=create_order.response.order_id)
)

order.output(OrderPlaced)(
    order_id=create_order.response.order_id,
    shipment_id=ship.response.shipment_id,
    charge_id=capture.response.charge_id,
)

"""`amends saga start|get` against a coordinator's public API over real gRPC."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.wrappers_pb2 import BytesValue
from typer.testing import CliRunner

from amends.cli.app import app
from amends.v1.saga_definition_pb2 import SagaDefinition
from amends.v1.saga_pb2 import Intent, Saga
from shop.money.v1.money_pb2 import Money
from shop.orders.v1.orders_pb2 import OrderPlaced, PlaceOrder
from tests.integration.cli.api import SagaApi, refuse
from tests.unit.cli.sagas import committed_saga, killed_saga, stuck_saga

ORDER = '{"customerId": "ada", "sku": "teapot", "quantity": 2, "total": {"currencyCode": "EUR", "minorUnits": "1250"}}'


def packed(payload: PlaceOrder | OrderPlaced) -> Any:
    """The payload as a saga holds it."""
    into = Any()
    into.Pack(payload)
    return into


def test_start_sends_the_input_in_the_definitions_type(api: SagaApi, runner: CliRunner) -> None:
    """JSON becomes the message that the definition's own descriptors describe, nested fields included."""
    done = runner.invoke(
        app,
        [
            "saga",
            "start",
            "order",
            "--id",
            "order-7",
            "--input",
            ORDER,
            "--label",
            "region=north=1",
            "--label",
            "empty=",
        ],
        env={"AMENDS_COORDINATOR": api.address},
    )
    assert (done.exit_code, done.stdout, done.stderr) == (0, "saga order-7 started: RUNNING\n", "")
    (request,) = api.started
    sent = PlaceOrder()
    assert request.input.Unpack(sent)
    assert sent == PlaceOrder(
        customer_id="ada", sku="teapot", quantity=2, total=Money(currency_code="EUR", minor_units=1250)
    )
    assert dict(request.labels) == {"region": "north=1", "empty": ""}
    assert (request.saga_id, request.definition_version) == ("order-7", "0123456789abcdef")


def test_start_again_shows_the_saga_that_exists(api: SagaApi, runner: CliRunner) -> None:
    """One saga per id (S9): the second start says so."""
    command = ["saga", "start", "order", "--id", "order-7", "--input", ORDER, "--coordinator", api.address]
    runner.invoke(app, command)
    assert runner.invoke(app, command).stdout == "saga order-7 exists already: RUNNING\n"


def test_input_from_a_file_and_from_a_pipe(api: SagaApi, runner: CliRunner, tmp_path: Path) -> None:
    """@FILE and @- read the JSON from elsewhere."""
    (tmp_path / "order.json").write_text(ORDER, "utf-8")
    command = ["saga", "start", "order", "--coordinator", api.address, "--input"]
    assert runner.invoke(app, [*command, f"@{tmp_path / 'order.json'}"]).exit_code == 0
    assert runner.invoke(app, [*command, "@-"], input=ORDER).exit_code == 0
    assert api.started[0].input == api.started[1].input


@pytest.mark.parametrize(("saga", "exit_code"), [(committed_saga(), 0), (stuck_saga(), 1)])
def test_start_and_wait(api: SagaApi, runner: CliRunner, saga: Saga, exit_code: int) -> None:
    """--wait asks until the saga has ended, shows it, and succeeds only if it committed."""
    saga.state = Saga.STATE_COMMITTED if exit_code == 0 else Saga.STATE_COMPENSATION_FAILED
    api.sagas[saga.saga_id] = saga
    api.waits_before_end = 2
    done = runner.invoke(
        app,
        ["saga", "start", "order", "--id", saga.saga_id, "--input", ORDER, "--wait", "--coordinator", api.address],
    )
    assert done.exit_code == exit_code, done.stderr
    assert api.waits_before_end == 0
    assert "── authorize" in done.stdout
    assert "\nauthorize " in done.stdout
    assert not done.stderr


def test_a_wait_tells_once_what_holds_the_saga_up(api: SagaApi, runner: CliRunner) -> None:
    """Who waits for a service that isn't running learns which one it is."""
    saga = committed_saga()
    saga.intents.add(step="ship", state=Intent.STATE_PENDING, last_error="nobody serves it", attempt_count=6)
    api.sagas[saga.saga_id] = saga
    api.waits_before_end = 3
    command = ["saga", "start", "order", "--id", saga.saga_id, "--input", ORDER, "--wait", "--coordinator", api.address]
    done = runner.invoke(app, command)
    assert done.exit_code == 0
    assert done.stderr.startswith(f"saga '{saga.saga_id}' can't get past step 'ship' yet: nobody serves it (attempt 6)")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("{", "--input is no JSON: "),
        ('{"sku": nonsense}', "--input is no JSON: "),
        ("[1]", "--input must be a JSON object with the fields of shop.orders.v1.PlaceOrder."),
        ("null", "--input must be a JSON object with the fields of shop.orders.v1.PlaceOrder."),
        ('{"colour": 1}', "--input: colour is no field of shop.orders.v1.PlaceOrder.\nIt has: customerId, sku, "),
        ('{"total": {"cents": 1}}', "--input: total.cents is no field of shop.money.v1.Money.\nIt has: currencyCode, "),
        (
            '{"quantity": "two"}',
            "--input: field quantity of shop.orders.v1.PlaceOrder: a whole number is wanted here, not 'two'.",
        ),
        (
            '{"quantity": [2]}',
            "--input: field quantity of shop.orders.v1.PlaceOrder: a whole number is wanted here, not l",
        ),
        ('{"sku": 2}', "--input: field sku of shop.orders.v1.PlaceOrder: a string is wanted here, not int."),
        ('{"quantity": 99999999999}', "--input: field quantity of shop.orders.v1.PlaceOrder: Value out of range"),
        ('{"total": {"minorUnits": 1.5}}', "--input: field total.minorUnits of shop.orders.v1.PlaceOrder: "),
        ('{"total": 12}', "--input: field total of shop.orders.v1.PlaceOrder: an object is wanted here, not int."),
        ('{"a":' * 100_000, "--input "),
        ("@does-not-exist.json", "can't read the input from 'does-not-exist.json': No such file or directory\n"),
    ],
)
def test_bad_input_is_named_and_not_sent(api: SagaApi, runner: CliRunner, payload: str, said: str) -> None:
    """Input that doesn't fit: at most two lines with the field's path, exit 1, no saga begun."""
    done = runner.invoke(app, ["saga", "start", "order", "--input", payload, "--coordinator", api.address])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") <= 2
    assert not api.started


def test_an_empty_id_is_not_a_new_one(api: SagaApi, runner: CliRunner) -> None:
    """S9: `--id "$ORDER"` with nothing in ORDER starts no saga under an id that nobody can say again."""
    done = runner.invoke(
        app, ["saga", "start", "order", "--input", ORDER, "--id", ""], env={"AMENDS_COORDINATOR": api.address}
    )
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "--id is empty.\nGive an id, or leave --id out for a new one.\n"
    assert api.started == []


def test_input_that_is_no_text(api: SagaApi, runner: CliRunner, tmp_path: Path) -> None:
    """A file of other bytes is refused in words."""
    (tmp_path / "order.json").write_bytes(b"\xff\xfe")
    command = ["saga", "start", "order", "--input", f"@{tmp_path / 'order.json'}", "--coordinator", api.address]
    done = runner.invoke(app, command)
    assert (done.exit_code, done.stderr.strip().endswith("it is not UTF-8 text.")) == (1, True)


@pytest.mark.parametrize("labels", [["nothing"], ["=x"], ["a=1", "a=2"]])
def test_bad_labels(api: SagaApi, runner: CliRunner, labels: list[str]) -> None:
    """A label that is none, or is given twice, is refused before anything is sent."""
    options = [option for label in labels for option in ("--label", label)]
    done = runner.invoke(app, ["saga", "start", "order", "--input", ORDER, *options, "--coordinator", api.address])
    assert (done.exit_code, done.stderr.startswith("--label ")) == (1, True)
    assert not api.started


def test_unknown_definition(api: SagaApi, runner: CliRunner) -> None:
    """The coordinator's reason and what to do now."""
    done = runner.invoke(app, ["saga", "start", "ordr", "--input", "{}", "--coordinator", api.address])
    assert done.exit_code == 1
    assert done.stderr == (
        f"the coordinator at {api.address} refused: no definition named ordr (DEFINITION_NOT_FOUND)\n"
        "The program that uses a definition registers it: check the name, or run that first.\n"
    )


def test_definition_with_broken_types(api: SagaApi, runner: CliRunner) -> None:
    """Descriptors that don't fit together, or lack the input type, are said to."""
    api.definitions["order"].descriptors.file.pop()
    broken = runner.invoke(app, ["saga", "start", "order", "--input", "{}", "--coordinator", api.address])
    api.definitions["order"] = SagaDefinition(name="order", input_type="a.B")
    lacking = runner.invoke(app, ["saga", "start", "order", "--input", "{}", "--coordinator", api.address])
    assert (broken.exit_code, lacking.exit_code) == (1, 1)
    assert broken.stderr.startswith("the types of the definition 'order' can't be read: ")
    assert lacking.stderr.startswith("the definition 'order' doesn't carry its input type a.B.\n")


def test_every_field_that_a_coordinator_refuses_is_listed(api: SagaApi, runner: CliRunner) -> None:
    """`BadRequest` details become a line each, unless the message says the same."""
    fields = {"saga_id": "has a space", "labels": "too many"}
    api.refusals["StartSaga"] = lambda context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", "2 fields are malformed", fields
    )
    done = runner.invoke(app, ["saga", "start", "order", "--input", "{}", "--coordinator", api.address])
    assert done.exit_code == 1
    assert done.stderr == (
        f"the coordinator at {api.address} refused: 2 fields are malformed (INVALID_REQUEST)\n"
        "  saga_id: has a space\n"
        "  labels: too many\n"
    )
    api.refusals["StartSaga"] = lambda context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", "saga_id: has a space", {"saga_id": "has a space"}
    )
    done = runner.invoke(app, ["saga", "start", "order", "--input", "{}", "--coordinator", api.address])
    assert done.stderr == f"the coordinator at {api.address} refused: saga_id: has a space (INVALID_REQUEST)\n"


@pytest.mark.parametrize(
    ("options", "advice"), [([], "With --id repeating is safe."), (["--id", "a1"], "with --id a1 that is safe.")]
)
def test_a_start_that_breaks_off_is_not_called_failed(
    api: SagaApi, runner: CliRunner, options: list[str], advice: str
) -> None:
    """Silence proves nothing: the command says that the saga may have begun, and how to repeat it safely."""
    api.refusals["StartSaga"] = lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
    done = runner.invoke(app, ["saga", "start", "order", "--input", "{}", *options, "--coordinator", api.address])
    assert done.exit_code == 1
    assert "Whether the saga began is not known: " in done.stderr
    assert done.stderr.endswith(f"{advice}\n")


def test_a_wait_that_breaks_off(api: SagaApi, runner: CliRunner) -> None:
    """What was said to be started is durable (S11): the error says that the saga goes on."""
    api.refusals["WaitSaga"] = lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
    command = ["saga", "start", "order", "--id", "a1", "--input", "{}", "--wait", "--coordinator", api.address]
    done = runner.invoke(app, command)
    assert (done.exit_code, done.stdout) == (1, "saga a1 started: RUNNING\n")
    assert done.stderr.endswith("goes on by itself: ask again with `amends saga get a1`.\n")


def test_get_prints_the_tree(api: SagaApi, runner: CliRunner) -> None:
    """`GetSaga` is the inspection tool."""
    api.sagas["order-1043"] = stuck_saga()
    done = runner.invoke(app, ["saga", "get", "order-1043", "--coordinator", api.address])
    assert done.exit_code == 0, done.stderr
    assert "├── authorize  compensation  PARKED    shop.payments.v1.PaymentsService/Void\n" in done.stdout


def test_get_draws_the_times_below_the_tree(api: SagaApi, runner: CliRunner) -> None:
    """A line per attempt, in a pipe as well; 100 columns there, whatever the terminal has."""
    api.sagas["order-1044"] = killed_saga()
    done = runner.invoke(app, ["saga", "get", "order-1044", "--coordinator", api.address], env={"COLUMNS": "200"})
    tree, _, bars = done.stdout.partition("\n\n")
    assert (tree.count("#1"), bars.count("#1"), bars.count("█"), bars.count("▒")) == (4, 5, 61, 3)
    assert max(len(line) for line in bars.splitlines()) == 100
    assert bars.splitlines()[-2].split() == ["node", "|01890a5d-ac96-1", "|01890a5d-ac96-2"]


def test_a_saga_without_rows_has_no_bars(api: SagaApi, runner: CliRunner) -> None:
    """Where retention has emptied it, or nothing was called yet, there is only what is known."""
    api.sagas["order-7"] = Saga(saga_id="order-7", definition_name="order", state=Saga.STATE_COMMITTED, purged=True)
    done = runner.invoke(app, ["saga", "get", "order-7", "--coordinator", api.address])
    assert done.stdout.splitlines() == [
        "order-7  order  COMMITTED",
        "└── purged: payloads and ledger rows were removed by retention",
    ]


def test_get_unknown_saga(api: SagaApi, runner: CliRunner) -> None:
    """What, where, and what to do now."""
    done = runner.invoke(app, ["saga", "get", "nope", "--coordinator", api.address])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        f"the coordinator at {api.address} refused: no saga has the id nope (SAGA_NOT_FOUND)\n"
        "`amends saga list` shows those there are.\n"
    )


def test_get_as_json_shows_payloads_by_the_definitions_types(api: SagaApi, runner: CliRunner) -> None:
    """Payloads are JSON where the definition is to be had, and bytes where it isn't or they don't parse."""
    saga = committed_saga()
    saga.input.CopyFrom(packed(PlaceOrder(sku="teapot", total=Money(minor_units=1250))))
    saga.output.CopyFrom(packed(OrderPlaced(order_id="o1")))
    saga.intents[0].request.CopyFrom(Any(type_url=saga.input.type_url, value=b"\xff"))
    saga.intents[1].response.CopyFrom(saga.output)
    api.sagas[saga.saga_id] = saga
    command = ["saga", "get", saga.saga_id, "--json", "--coordinator", api.address]
    shown = json.loads(runner.invoke(app, command).stdout)
    assert (shown["sagaId"], shown["state"]) == ("order-1042", "STATE_COMMITTED")
    assert shown["input"] == {
        "@type": "type.googleapis.com/shop.orders.v1.PlaceOrder",
        "sku": "teapot",
        "total": {"minorUnits": "1250"},
    }
    assert shown["output"]["orderId"] == shown["intents"][1]["response"]["orderId"] == "o1"
    assert shown["intents"][0]["request"]["base64"] == "/w=="

    saga.intents[0].request.Pack(BytesValue(value=b"\xff"))
    unreadable = json.loads(runner.invoke(app, command).stdout)["intents"][0]["request"]
    assert unreadable == {"@type": "type.googleapis.com/google.protobuf.BytesValue", "value": "/w=="}

    api.definitions.clear()
    without = json.loads(runner.invoke(app, command).stdout)
    assert set(without["input"]) == {"@type", "base64"}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_is_json_whatever_a_payload_says(api: SagaApi, runner: CliRunner, encoding: str) -> None:
    """Nothing but JSON in any locale, the same in every run; what a terminal would obey is escaped."""
    saga = committed_saga()
    said = "Zoë\x9b2J\u202e\u2028😀\x7f"
    saga.input.CopyFrom(packed(PlaceOrder(customer_id=said)))
    api.sagas[saga.saga_id] = saga
    runner.charset = encoding
    command = ["saga", "get", saga.saga_id, "--json", "--coordinator", api.address]
    first, again = runner.invoke(app, command), runner.invoke(app, command)
    assert (first.stdout, first.stderr) == (again.stdout, "")
    shown = json.loads(first.stdout)
    assert shown["input"]["customerId"] == said
    assert list(shown["labels"]) == ["channel", "region"]
    assert not set(first.stdout) & {"\x9b", "\u202e", "\u2028", "\x7f"}
    assert ("Zoë" in first.stdout) is (encoding == "utf-8")

"""`amends saga list` against a coordinator's public API over real gRPC."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.any_pb2 import Any
from typer.testing import CliRunner

from amends.cli.app import app
from amends.v1.saga_pb2 import Saga
from shop.orders.v1.orders_pb2 import PlaceOrder
from tests.integration.cli.api import SagaApi
from tests.unit.cli.sagas import committed_saga, stuck_saga


def test_list_is_one_line_for_each(api: SagaApi, runner: CliRunner) -> None:
    """Every saga on a line of its own, whatever the terminal's width."""
    api.sagas = {saga.saga_id: saga for saga in (stuck_saga(), committed_saga())}
    done = runner.invoke(app, ["saga", "list", "--coordinator", api.address])
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines == [
        ["SAGA", "DEFINITION", "STATE", "PROGRESS", "BEGUN", "TOOK"],
        [
            "order-1043",
            "order",
            "COMPENSATING",
            "2",
            "to",
            "undo",
            "2026-11-30",
            "00:53:20Z",
            "-",
            "attention",
            "required",
        ],
        ["order-1042", "order", "COMMITTED", "-", "2026-11-30", "00:53:20Z", "1.42", "s"],
    ]


def test_list_filters_and_pages(api: SagaApi, runner: CliRunner) -> None:
    """States go to the coordinator; pages are read until the limit, and more than that is mentioned."""
    api.page_size = 2
    for number in range(6):
        api.sagas[f"s{number}"] = Saga(saga_id=f"s{number}", state=Saga.STATE_COMPENSATED)
    api.sagas["other"] = Saga(saga_id="other", state=Saga.STATE_RUNNING)
    command = ["saga", "list", "--state", "compensated", "--coordinator", api.address]
    some = runner.invoke(app, [*command, "--limit", "5"])
    assert [line.split()[0] for line in some.stdout.splitlines()[1:]] == ["s0", "s1", "s2", "s3", "s4"]
    assert some.stderr == "these are the newest 5; --limit shows more\n"
    every = runner.invoke(app, [*command, "--limit", "6"])
    assert (len(every.stdout.splitlines()), every.stderr) == (7, "")
    assert all(list(request.states) == [Saga.STATE_COMPENSATED] for request in api.listed)


def test_list_of_nothing(api: SagaApi, runner: CliRunner) -> None:
    """Nothing found is no error, and nothing on standard output."""
    done = runner.invoke(app, ["saga", "list", "--coordinator", api.address])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no sagas\n")


def test_list_of_an_unknown_state_is_refused(api: SagaApi, runner: CliRunner) -> None:
    """The states that there are, are named."""
    done = runner.invoke(app, ["saga", "list", "--state", "stuck", "--coordinator", api.address])
    assert done.exit_code == 2
    assert "compensation_failed" in done.stderr


def test_every_filter_is_sent(api: SagaApi, runner: CliRunner) -> None:
    """Each option is a field of the request, on every page; what isn't given isn't sent."""
    options = (
        "--state running --state compensating --definition order --definition-version 0123456789abcdef --label a=b=c "
        "--label d= --attention --unproven --owed --participant bank --since 2026-11-30 --until 2026-11-30T08:30+01:00 "
        "--updated-since 2h --updated-until 1m --stalled-for 1h30m"
    )
    before = datetime.now(UTC)
    done = runner.invoke(app, ["saga", "list", *options.split(), "--coordinator", api.address])
    assert (done.exit_code, done.stderr) == (0, "no sagas that all options let through\n")
    (sent,) = api.listed
    assert list(sent.states) == [Saga.STATE_RUNNING, Saga.STATE_COMPENSATING]
    assert (sent.definition_name, sent.definition_version) == ("order", "0123456789abcdef")
    assert dict(sent.labels) == {"a": "b=c", "d": ""}
    assert (sent.attention_required, sent.unproven, sent.compensations_owed) == (True, True, True)
    assert sent.participant == "bank"
    assert sent.earliest_create_time.ToDatetime(UTC) == datetime(2026, 11, 30, tzinfo=UTC)
    assert sent.latest_create_time.ToDatetime(UTC) == datetime(2026, 11, 30, 7, 30, tzinfo=UTC)
    assert (
        timedelta() <= sent.earliest_update_time.ToDatetime(UTC) - (before - timedelta(hours=2)) < timedelta(minutes=1)
    )
    assert (
        timedelta() <= sent.latest_update_time.ToDatetime(UTC) - (before - timedelta(minutes=1)) < timedelta(minutes=1)
    )
    assert sent.stalled_for.ToTimedelta() == timedelta(minutes=90)
    api.listed.clear()
    runner.invoke(app, ["saga", "list", "--coordinator", api.address])
    assert [sent.ListFields() for sent in api.listed] == [[(sent.DESCRIPTOR.fields_by_name["page_size"], 51)]]


@pytest.mark.parametrize(
    "option", ["--since", "--until", "--updated-since", "--updated-until", "--stalled-for", "--label"]
)
def test_what_cannot_be_read_is_named_and_not_sent(api: SagaApi, runner: CliRunner, option: str) -> None:
    """A sentence with the option and an example of what may be written."""
    done = runner.invoke(app, ["saga", "list", option, "soon", "--coordinator", api.address])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{option} 'soon' is no ")
    assert ": write " in done.stderr
    assert not api.listed


def test_stalled_sagas_say_since_when(api: SagaApi, runner: CliRunner) -> None:
    """Whoever looks for what doesn't get on is told since when it doesn't."""
    saga = stuck_saga()
    saga.progress_time.FromJsonString("2026-11-30T01:00:00Z")
    api.sagas = {saga.saga_id: saga}
    done = runner.invoke(app, ["saga", "list", "--stalled-for", "5m", "--coordinator", api.address])
    assert done.stdout.splitlines()[1].endswith("attention required, no progress since 2026-11-30 01:00:00Z")


def test_list_as_json_is_a_line_for_each(api: SagaApi, runner: CliRunner) -> None:
    """For other programs: payloads by the definition's types, one saga on each line, no more than the limit."""
    for number in range(3):
        saga = Saga(saga_id=f"s{number}", definition_name="order", definition_version="0123456789abcdef", step_count=2)
        saga.input.CopyFrom(Any())
        saga.input.Pack(PlaceOrder(sku="teapot"))
        api.sagas[saga.saga_id] = saga
    done = runner.invoke(app, ["saga", "list", "--json", "--limit", "2", "--coordinator", api.address])
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["sagaId"], each["input"]["sku"], each["stepCount"]) for each in shown] == [
        ("s0", "teapot", 2),
        ("s1", "teapot", 2),
    ]
    assert done.stderr == "these are the newest 2; --limit shows more\n"
    api.sagas.clear()
    nothing = runner.invoke(app, ["saga", "list", "--json", "--coordinator", api.address])
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "no sagas\n")

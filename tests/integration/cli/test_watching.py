"""`amends saga watch` against a coordinator's public API over real gRPC."""

from __future__ import annotations

import grpc
import pytest
from typer.testing import CliRunner

from amends.cli import following
from amends.cli.app import app
from amends.v1.saga_pb2 import DIRECTION_ACTION, Intent, Saga
from tests.integration.cli.api import SagaApi, refuse
from tests.unit.cli.sagas import at, committed_saga, stuck_saga


def changes(end: Saga) -> list[Saga | None]:
    """A saga as it is, after its first step, and at its end."""
    first = Saga(saga_id=end.saga_id, definition_name="order", state=Saga.STATE_RUNNING, write_count=1)
    first.create_time.CopyFrom(at(0))
    first.update_time.CopyFrom(at(0))
    first.intents.add(
        step="reserve",
        direction=DIRECTION_ACTION,
        state=Intent.STATE_PENDING,
        attempt_count=1,
        create_time=at(0),
        update_time=at(0),
    )
    second = Saga()
    second.CopyFrom(first)
    second.write_count = 2
    second.intents[0].state = Intent.STATE_SUCCEEDED
    second.intents[0].update_time.CopyFrom(at(1_000))
    end.write_count = 3
    end.update_time.CopyFrom(at(1_420))
    for intent in end.intents:
        intent.attempt_count = max(1, intent.attempt_count)
        intent.update_time.CopyFrom(at(1_400))
    return [first, second, end]


def test_a_pipe_gets_a_line_for_each_change(api: SagaApi, runner: CliRunner) -> None:
    """Each call and each state once, with its time; the exit code says whether it committed."""
    end = committed_saga()
    api.changes[end.saga_id] = changes(end)
    done = runner.invoke(app, ["saga", "watch", end.saga_id, "--coordinator", api.address])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "2026-11-30 00:53:20Z  order-1042  order",
        "2026-11-30 00:53:20Z  reserve  action  PENDING  #1",
        "2026-11-30 00:53:20Z  RUNNING",
        "2026-11-30 00:53:21Z  reserve  action  SUCCEEDED  #1",
        "2026-11-30 00:53:21Z  authorize  action  SUCCEEDED  #1",
        "2026-11-30 00:53:21Z  COMMITTED  in 1.42 s",
    ]


def test_a_stream_that_breaks_goes_on(api: SagaApi, runner: CliRunner) -> None:
    """Over a restart nothing is said twice, and standard output has nothing but the changes."""
    end = committed_saga()
    first, second, last = changes(end)
    api.changes[end.saga_id] = [first, None, second, None, last]
    done = runner.invoke(app, ["saga", "watch", end.saga_id, "--coordinator", api.address])
    assert (done.exit_code, done.stdout.count("reserve"), done.stdout.count("COMMITTED")) == (0, 2, 1)
    assert done.stderr.splitlines() == ["the coordinator doesn't answer; reconnecting ..."] * 2
    assert [request.known_write_count for request in api.watched] == [0, 1, 2]


def test_only_a_saga_that_committed_is_a_success(api: SagaApi, runner: CliRunner) -> None:
    """For scripts: exit code 1 where it was rolled back; dead letters have lines of their own."""
    end = stuck_saga()
    end.state = Saga.STATE_COMPENSATED
    end.end_time.CopyFrom(at(2_000))
    api.changes[end.saga_id] = changes(end)
    done = runner.invoke(app, ["saga", "watch", end.saga_id, "--coordinator", api.address])
    assert done.exit_code == 1
    assert "dead letter open  BUDGET_SPENT  order-1043/authorize/compensation/1" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("COMPENSATED  in 2.00 s")
    assert "connection refused\\x1b[2J" in done.stdout


@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        (grpc.StatusCode.NOT_FOUND, "SAGA_NOT_FOUND", "`amends saga list` shows those there are"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_WATCHERS", "or try again later."),
        (grpc.StatusCode.UNAVAILABLE, "STOPPING", "Try again; the next coordinator answers."),
    ],
)
def test_what_is_refused_at_once_is_told(
    api: SagaApi, runner: CliRunner, code: grpc.StatusCode, reason: str, advice: str
) -> None:
    """Only a stream that told something is opened again."""
    api.refusals["WatchSaga"] = lambda context: refuse(context, code, reason, "no")
    done = runner.invoke(app, ["saga", "watch", "s", "--coordinator", api.address])
    assert (done.exit_code, done.stdout) == (1, "")
    assert advice in done.stderr


def test_one_saga_or_a_list(api: SagaApi, runner: CliRunner) -> None:
    """An id and a filter contradict each other."""
    done = runner.invoke(app, ["saga", "watch", "s", "--attention", "--coordinator", api.address])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("One saga is watched by its id, a list by options")


def test_a_watched_list_tells_of_what_is_new_and_of_what_changes(
    api: SagaApi, runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look sends the filters; a saga has a line when it appears and when it was written; outages are survived."""
    monkeypatch.setattr(following, "ASK_INTERVAL_S", 0.001)
    api.sagas["s1"] = Saga(saga_id="s1", state=Saga.STATE_RUNNING, step_count=2, write_count=1)

    looks = 0

    def look(context: grpc.ServicerContext) -> None:
        nonlocal looks
        looks += 1
        match looks:
            case 2:
                context.abort(grpc.StatusCode.UNAVAILABLE, "connection reset")
            case 4:
                api.sagas["s1"].succeeded_step_count, api.sagas["s1"].write_count = 1, 2
                api.sagas["s2"] = Saga(saga_id="s2", state=Saga.STATE_RUNNING, step_count=2, write_count=1)
            case 6:
                refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", "enough of this")
            case _:
                pass

    api.refusals["ListSagas"] = look
    done = runner.invoke(app, ["saga", "watch", "--state", "running", "--coordinator", api.address])
    assert done.stdout.splitlines() == [
        "s1  (client-driven)  RUNNING  0/2",
        "s2  (client-driven)  RUNNING  0/2",
        "s1  (client-driven)  RUNNING  1/2",
    ]
    assert done.stderr.startswith("the coordinator doesn't answer; reconnecting ...\nthe coordinator at ")
    assert done.exit_code == 1
    assert {tuple(request.states) for request in api.listed} == {(Saga.STATE_RUNNING,)}

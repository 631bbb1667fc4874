"""The caller's trace context: W3C's form, or none."""

from __future__ import annotations

import pytest

from amends_coordinator.grpc_api.trace_context import NO_TRACE, trace_context

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_good_context_is_taken() -> None:
    """The initiator's context is kept with the saga."""
    metadata = [("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b@c=2 , d=3"), ("other", "x")]
    assert trace_context(metadata) == (PARENT, "a=1,b@c=2,d=3")


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "ff" + PARENT[2:],
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        PARENT.upper(),
        PARENT + "-x",
        PARENT + "\n",
    ],
)
def test_anything_else_is_ignored(bad: str) -> None:
    """A broken trace never refuses a saga."""
    assert trace_context([("traceparent", bad), ("tracestate", "a=1")]) == NO_TRACE


def test_two_parents_are_none() -> None:
    """W3C: more than one traceparent is as good as none."""
    assert trace_context([("traceparent", PARENT), ("traceparent", PARENT)]) == NO_TRACE
    assert trace_context(None) == NO_TRACE


@pytest.mark.parametrize("bad", ["=1", "a", "a=\x01", "A=1", ",".join(f"k{i}=v" for i in range(33)), "a=" + "x" * 600])
def test_bad_state_is_dropped_alone(bad: str) -> None:
    """The parent counts even when the state beside it is broken."""
    assert trace_context([("traceparent", PARENT), ("tracestate", bad)]) == (PARENT, "")

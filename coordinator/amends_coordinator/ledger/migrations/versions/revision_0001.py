"""The first schema: sagas, intents, dead letters and what they refer to."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make every table, those that others refer to first."""
    _node()
    _participant()
    _saga_definition()
    _participant_instance()
    _saga()
    _audit_entry()
    _dead_letter()
    _intent()
    _saga_label()


def _name(name: str, length: int, comment: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length), nullable=nullable, comment=comment)


def _id_of_saga(name: str, comment: str) -> sa.Column[Any]:
    kind = sa.String(128).with_variant(sa.String(128, collation="C"), "postgresql")
    return sa.Column(name, kind, nullable=False, comment=comment)


def _text(name: str, comment: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text(), nullable=False, comment=comment)


def _bytes(name: str, comment: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.LargeBinary(), nullable=nullable, comment=comment)


def _instant(name: str, comment: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, comment=comment)


def _flag(name: str, comment: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Boolean(), nullable=False, comment=comment)


def _count(name: str, comment: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Integer(), nullable=False, comment=comment)


def _number(name: str, comment: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), nullable=False, comment=comment)


def _node() -> None:
    op.create_table(
        "node",
        _name("node_id", 64, "One incarnation: one start of a coordinator process."),
        _instant("started_time", "When it took the ledger, by its own clock (UTC)."),
        _instant("heartbeat_time", "Its last sign of life (UTC); null: none yet.", nullable=True),
        _flag("fenced", "Whether it was shut out: nothing that it writes is applied any more."),
        _count("format", "The newest format of saga rows that it knows."),
        sa.PrimaryKeyConstraint("node_id", name="pk_node"),
        comment="The incarnations of coordinator processes that ever held this ledger.",
    )


def _participant() -> None:
    op.create_table(
        "participant",
        _name("name", 128, "The participant's name."),
        _text("services", "The full names of its gRPC services, as a JSON list."),
        _bytes("descriptors", "The serialised FileDescriptorSet of its services."),
        _instant("created_time", "When it announced itself first (UTC)."),
        _instant("updated_time", "When it announced itself last (UTC)."),
        sa.PrimaryKeyConstraint("name", name="pk_participant"),
        comment="The services that execute steps, by name.",
    )


def _saga_definition() -> None:
    op.create_table(
        "saga_definition",
        _name("name", 128, "The definition's name."),
        _name("version", 64, "Computed from its content: 16 hexadecimal digits."),
        _bytes("content", "The serialised amends.v1.SagaDefinition."),
        _instant("created_time", "When it was registered (UTC). Sagas started by name run the newest."),
        sa.PrimaryKeyConstraint("name", "version", name="pk_saga_definition"),
        comment="Registered saga definitions. They never change and are kept as long as a saga names them.",
    )


def _participant_instance() -> None:
    op.create_table(
        "participant_instance",
        _name("participant", 128, "The participant that it is a process of."),
        _name("instance_id", 128, "Tells the participant's processes apart."),
        _name("address", 256, "Where it is reached: host:port."),
        _count("capacity", "How many calls it takes at once; 0: it didn't say."),
        _instant("lease_end_time", "Until when it counts as there, unless it renews (UTC)."),
        sa.ForeignKeyConstraint(["participant"], ["participant.name"], name="fk_participant_instance_participant"),
        sa.PrimaryKeyConstraint("participant", "instance_id", name="pk_participant_instance"),
        comment="The processes of participants.",
    )


def _saga() -> None:
    op.create_table(
        "saga",
        _id_of_saga("id", "The saga's id, chosen by the initiator or made here."),
        _name("definition_name", 128, "The name of the definition that it runs."),
        _name("definition_version", 64, "The version of the definition that it runs."),
        _name("state", 24, "RUNNING, COMMITTED, COMPENSATING, COMPENSATED or COMPENSATION_FAILED."),
        _name("owner", 64, "The node_id of the node that drives it; null: whoever claims it.", nullable=True),
        _number("version", "Counts its writes, from 1. Every write demands the one it saw."),
        _name("written_by", 96, "node_id:batch of the last decision of an owner."),
        _instant(
            "due_time", "When something is to be done next, without being asked (UTC); null: never.", nullable=True
        ),
        _flag("point_of_no_return_passed", "Whether it can't be rolled back any more."),
        _flag("abort_requested", "Whether an abort was accepted."),
        _flag("unproven", "Whether its end rests on an assumption that nobody proved."),
        _flag("attention_required", "Whether at least one of its dead letters is open."),
        _count("compensations_owed", "How many steps are still to be undone."),
        _bytes("input", "The serialised input message."),
        _bytes("output", "The serialised output message; null: none.", nullable=True),
        _name("failure_step", 64, "The step that made it roll back; null: not one step.", nullable=True),
        _text("failure_reason", "The first cause of rolling back, as a short reason; empty: it doesn't roll back."),
        _text("failure_code", "The gRPC status code of the first cause; empty: there was no answer."),
        _text("failure_message", "The first cause in the participant's words."),
        _instant("failure_time", "When it was recorded (UTC); null: the saga has no failure.", nullable=True),
        _instant("created_time", "When it was started (UTC)."),
        _instant("updated_time", "When it was last written (UTC)."),
        _instant("ended_time", "When it ended (UTC); null: it hasn't.", nullable=True),
        _instant("deadline_time", "When its timeout is over (UTC)."),
        _text("traceparent", "The starter's trace context."),
        _text("tracestate", "The starter's trace state."),
        _name("start_token", 64, "The request that started it; others with its id compare."),
        _bytes("input_hash", "Hash of the input, kept when the input is removed."),
        _name("input_hash_recipe", 64, "How the hash was made."),
        _count("format", "The format of the saga's rows."),
        sa.ForeignKeyConstraint(
            ["definition_name", "definition_version"],
            ["saga_definition.name", "saga_definition.version"],
            name="fk_saga_definition_name_definition_version",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_saga"),
        comment="One row per saga: where it stands, who drives it and when it is due. A saga's row is never removed.",
    )
    op.create_index("ix_saga_created", "saga", ["created_time", "id"])
    op.create_index(
        "ix_saga_due",
        "saga",
        ["due_time"],
        sqlite_where=sa.text("state NOT IN ('COMMITTED', 'COMPENSATED')"),
        postgresql_where=sa.text("state NOT IN ('COMMITTED', 'COMPENSATED')"),
    )
    op.create_index("ix_saga_state", "saga", ["state", "created_time", "id"])


def _audit_entry() -> None:
    op.create_table(
        "audit_entry",
        _name("id", 64, "Made by the requester's node: a verb sent again finds its own."),
        _id_of_saga("saga_id", "The saga's id."),
        _name("dead_letter_id", 256, "The dead letter that it settled; null: none.", nullable=True),
        _name("verb", 64, "What was done, for example RetryDeadLetter."),
        _text("actor", "Who did it, as authenticated; or unauthenticated: and the peer."),
        _text("claimed_actor", "Who the request said it was; only a claim."),
        _text("reason", "Why, in the actor's words."),
        _text("details", "What was decided, as JSON."),
        _instant("created_time", "When (UTC)."),
        sa.ForeignKeyConstraint(["saga_id"], ["saga.id"], name="fk_audit_entry_saga_id"),
        sa.PrimaryKeyConstraint("id", name="pk_audit_entry"),
        comment="What people did to sagas, written in the transaction that did it.",
    )
    op.create_index("ix_audit_entry_saga_id", "audit_entry", ["saga_id"])


def _dead_letter() -> None:
    op.create_table(
        "dead_letter",
        _name("id", 256, "saga_id/step/direction/n."),
        _id_of_saga("saga_id", "The saga's id."),
        _count("position", "The order in which the saga's dead letters were opened, from 0."),
        _name("step", 64, "The step; null: the saga as a whole.", nullable=True),
        _name("direction", 16, "ACTION, COMPENSATION or LOOKUP; null: the saga as a whole.", nullable=True),
        _name("reason", 32, "Why only a person can go on."),
        _text("last_error", "What happened last."),
        _instant("opened_time", "When it was opened (UTC)."),
        _instant("closed_time", "When it was closed (UTC); null: it is open.", nullable=True),
        sa.ForeignKeyConstraint(["saga_id"], ["saga.id"], name="fk_dead_letter_saga_id"),
        sa.PrimaryKeyConstraint("id", name="pk_dead_letter"),
        comment="What only a person can decide.",
    )
    op.create_index(
        "ix_dead_letter_open",
        "dead_letter",
        ["opened_time"],
        sqlite_where=sa.text("closed_time IS NULL"),
        postgresql_where=sa.text("closed_time IS NULL"),
    )
    op.create_index("ix_dead_letter_saga_id", "dead_letter", ["saga_id"])


def _intent() -> None:
    op.create_table(
        "intent",
        _id_of_saga("saga_id", "The saga's id."),
        _name("step", 64, "The step's name."),
        _name("direction", 16, "ACTION, COMPENSATION or LOOKUP."),
        _count("position", "The order in which the saga's intents were announced, from 0."),
        _name("method", 256, "The method that is called: package.Service/Method."),
        _name("state", 24, "PENDING, SUCCEEDED, REJECTED, UNKNOWN, NOTHING_TO_UNDO, PARKED, RESOLVED or DROPPED."),
        _count("attempt", "The number of the newest announced attempt, from 1; 0: its request couldn't be built."),
        _text("attempts", "The attempts as JSON, the first and the last ones in full."),
        _text("attempts_left_out", "The other attempts as JSON: how many ended with which status code."),
        _instant("next_attempt_time", "When the next attempt is due (UTC); null: none is waiting.", nullable=True),
        _flag("unsettled", "Whether an attempt ended unknown and nothing has proven since what became of it."),
        _count("refusals", "How many definite refusals of the budget are used."),
        _number("spent_us", "How much time of the budget is used, in microseconds."),
        _number("unsent_us", "For how long nothing could be sent, in microseconds."),
        _bytes("request", "The serialised request: the same bytes on every attempt."),
        _bytes("response", "The serialised response; null: there is none.", nullable=True),
        _text("last_error", "What the last attempt that didn't succeed said."),
        _text("last_code", "Its gRPC status code; empty: there was no answer."),
        _instant("created_time", "When it was announced (UTC)."),
        _instant("updated_time", "When it was last written (UTC)."),
        sa.ForeignKeyConstraint(["saga_id"], ["saga.id"], name="fk_intent_saga_id"),
        sa.PrimaryKeyConstraint("saga_id", "step", "direction", name="pk_intent"),
        comment="One row per call that may be made: written before it leaves, and what is known of it since.",
    )


def _saga_label() -> None:
    op.create_table(
        "saga_label",
        _id_of_saga("saga_id", "The saga's id."),
        _name("key", 64, "The label's key."),
        _name("value", 256, "The label's value."),
        sa.ForeignKeyConstraint(["saga_id"], ["saga.id"], name="fk_saga_label_saga_id"),
        sa.PrimaryKeyConstraint("saga_id", "key", name="pk_saga_label"),
        comment="The labels that a saga was started with.",
    )
    op.create_index("ix_saga_label_key", "saga_label", ["key", "value", "saga_id"])

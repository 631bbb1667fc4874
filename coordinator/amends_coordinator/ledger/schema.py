"""The tables of the ledger: one `MetaData` for every database.

An operator must be able to answer "what is going on" with plain SQL, so states are readable words, instants are times
in UTC, and every table and column says what it is. Payloads (serialised protobuf) are bytes and nobody's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    text,
)

from amends_coordinator.ledger.instants import InstantType

if TYPE_CHECKING:
    from typing import Any

REVISION = "0004"
"""The schema that this release knows: the newest revision in `migrations`."""

FORMAT = 1
"""The newest format of a saga's rows that this release can drive. Nodes claim only sagas whose format they know."""

ACTIVE = "(state NOT IN ('COMMITTED', 'COMPENSATED') OR due_time IS NOT NULL)"
"""The sagas that can still change, or have something left to do (a compensated one may: steps that follow its
compensation), as the partial index knows them: a query that repeats this text can use it. (Put the other way round, as
`IN`, SQLite would take the index of states for it and sort.)"""

SETTLED = "state IN ('COMMITTED', 'COMPENSATED')"
"""The sagas whose state never changes again, as the indexes of lists know them. A running saga is written at every
step; what is indexed here costs it nothing until its end. The few that run are found by their state.
"""

UNFINISHED = "state IN ('COMMITTED', 'COMPENSATED') AND due_time IS NOT NULL"
"""Those of them that have something left to do all the same."""

UNPURGED = (
    "state <> 'RUNNING' AND state <> 'COMPENSATING' AND state <> 'COMPENSATION_FAILED' AND due_time IS NULL "
    "AND NOT attention_required AND NOT purged"
)
"""The sagas that retention may empty once their time has come, as its index knows them: however many wait for a person,
it doesn't look at them again and again. (As `IN` the states would lead SQLite to another index, as above; as `NOT IN`
it would make a table of the three for every row that is written.)
"""

EPOCH = "1970-01-01 00:00:00.000000"
"""Stands in columns that were added to rows which exist, until the migration has filled them."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _instant(name: str, comment: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, InstantType(), nullable=nullable, comment=comment)


def _added_instant(name: str, comment: str) -> Column[Any]:
    return Column(name, InstantType(), nullable=False, server_default=EPOCH, comment=comment)


def _index_where(name: str, where: str, *columns: str) -> Index:
    """An index of the rows that the condition holds for. It has to be repeated in a query as it is written here."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


def _flag(name: str, comment: str) -> Column[Any]:
    return Column(name, Boolean(), nullable=False, comment=comment)


def _count(name: str, comment: str) -> Column[Any]:
    return Column(name, Integer(), nullable=False, comment=comment)


def _text(name: str, comment: str) -> Column[Any]:
    return Column(name, Text(), nullable=False, comment=comment)


def _id_of_saga() -> String:
    """Ids sort by their bytes on every database, as they do in Python: pages of several states are merged there."""
    return String(128).with_variant(String(128, collation="C"), "postgresql")


def _saga_id(*, primary_key: bool = False) -> Column[Any]:
    return Column(
        "saga_id",
        _id_of_saga(),
        ForeignKey("saga.id"),
        primary_key=primary_key,
        nullable=False,
        comment="The saga's id.",
    )


node = Table(
    "node",
    metadata,
    Column("node_id", String(64), primary_key=True, comment="One incarnation: one start of a coordinator process."),
    _instant("started_time", "When it took the ledger, by its own clock (UTC)."),
    _instant("heartbeat_time", "Its last sign of life (UTC); null: none yet.", nullable=True),
    _flag("fenced", "Whether it was shut out: nothing that it writes is applied any more."),
    _count("format", "The newest format of saga rows that it knows."),
    comment="The incarnations of coordinator processes that ever held this ledger.",
)

saga_definition = Table(
    "saga_definition",
    metadata,
    Column("name", String(128), primary_key=True, comment="The definition's name."),
    Column("version", String(64), primary_key=True, comment="Computed from its content: 16 hexadecimal digits."),
    Column("content", LargeBinary(), nullable=False, comment="The serialised amends.v1.SagaDefinition."),
    _instant("created_time", "When it was registered (UTC). Sagas started by name run the newest."),
    comment="Registered saga definitions. They never change and are kept as long as a saga names them.",
)

saga = Table(
    "saga",
    metadata,
    Column("id", _id_of_saga(), primary_key=True, comment="The saga's id, chosen by the initiator or made here."),
    Column("definition_name", String(128), nullable=False, comment="The name of the definition that it runs."),
    Column("definition_version", String(64), nullable=False, comment="The version of the definition that it runs."),
    Column(
        "state",
        String(24),
        nullable=False,
        comment="RUNNING, COMMITTED, COMPENSATING, COMPENSATED or COMPENSATION_FAILED.",
    ),
    Column(
        "owner", String(64), nullable=True, comment="The node_id of the node that drives it; null: whoever claims it."
    ),
    Column(
        "version",
        BigInteger(),
        nullable=False,
        comment="Counts its writes, from 1. Every write demands the one it saw.",
    ),
    Column("written_by", String(96), nullable=False, comment="node_id:batch of the last decision of an owner."),
    _instant("due_time", "When something is to be done next, without being asked (UTC); null: never.", nullable=True),
    Column(
        "goes_first",
        Boolean(),
        nullable=False,
        server_default=false(),
        comment="Whether it is taken up before others that are due: it rolls back, or its node is gone.",
    ),
    Column(
        "waits_for",
        Text(),
        nullable=False,
        server_default="",
        comment="The participant that its next call goes to, or that has its call now; empty: none, or several. While "
        "that one has its share of the memory the saga is left where it is.",
    ),
    _flag("point_of_no_return_passed", "Whether it can't be rolled back any more."),
    _flag("abort_requested", "Whether an abort was accepted."),
    _flag("unproven", "Whether its end rests on an assumption that nobody proved."),
    _flag("attention_required", "Whether at least one of its dead letters is open."),
    _count("compensations_owed", "How many steps are still to be undone."),
    Column("input", LargeBinary(), nullable=False, comment="The serialised input message."),
    Column("output", LargeBinary(), nullable=True, comment="The serialised output message; null: none."),
    Column("failure_step", String(64), nullable=True, comment="The step that made it roll back; null: not one step."),
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
    Column(
        "start_token", String(64), nullable=False, comment="The request that started it; others with its id compare."
    ),
    Column("input_hash", LargeBinary(), nullable=False, comment="Hash of the input, kept when the input is removed."),
    Column("input_hash_recipe", String(64), nullable=False, comment="How the hash was made."),
    _count("format", "The format of the saga's rows."),
    _added_instant(
        "progress_time",
        "When a call was announced for the first time or settled, or the state changed, last (UTC).",
    ),
    Column(
        "purged",
        Boolean(),
        nullable=False,
        server_default=false(),
        comment="Whether retention has emptied it: only this row is left.",
    ),
    ForeignKeyConstraint(
        ["definition_name", "definition_version"], ["saga_definition.name", "saga_definition.version"]
    ),
    _index_where("ix_saga_due", ACTIVE, "goes_first", "due_time", "waits_for"),
    Index("ix_saga_state", "state", "created_time", "id"),
    _index_where("ix_saga_definition", SETTLED, "definition_name", "state", "created_time", "id"),
    _index_where("ix_saga_definition_version", SETTLED, "definition_version", "state", "created_time", "id"),
    _index_where("ix_saga_updated", SETTLED, "updated_time", "state", "created_time", "id"),
    _index_where("ix_saga_attention", "attention_required", "state", "created_time", "id"),
    _index_where("ix_saga_unproven", "unproven", "state", "created_time", "id"),
    _index_where("ix_saga_unfinished", UNFINISHED, "state", "created_time", "id"),
    _index_where("ix_saga_retention", UNPURGED, "ended_time"),
    comment="One row per saga: where it stands, who drives it and when it is due. A saga's row is never removed.",
)

saga_label = Table(
    "saga_label",
    metadata,
    _saga_id(primary_key=True),
    Column("key", String(64), primary_key=True, comment="The label's key."),
    Column("value", String(256), nullable=False, comment="The label's value."),
    _added_instant("created_time", "When the saga was started (UTC)."),
    Index("ix_saga_label_key", "key", "value", "created_time", "saga_id"),
    comment="The labels that a saga was started with.",
)

saga_participant = Table(
    "saga_participant",
    metadata,
    _saga_id(primary_key=True),
    Column("participant", String(128), primary_key=True, comment="The participant's name."),
    _instant("created_time", "When the saga was started (UTC)."),
    Index("ix_saga_participant_participant", "participant", "created_time", "saga_id"),
    comment="The participants that a saga's input chose for its steps; its definition names others.",
)

intent = Table(
    "intent",
    metadata,
    _saga_id(primary_key=True),
    Column("step", String(64), primary_key=True, comment="The step's name."),
    Column("direction", String(16), primary_key=True, comment="ACTION, COMPENSATION or LOOKUP."),
    _count("position", "The order in which the saga's intents were announced, from 0."),
    Column("method", String(256), nullable=False, comment="The method that is called: package.Service/Method."),
    Column(
        "participant",
        String(128),
        nullable=False,
        server_default="",
        comment="The participant that the newest attempt goes to; empty: none was found.",
    ),
    Column(
        "state",
        String(24),
        nullable=False,
        comment="PENDING, SUCCEEDED, REJECTED, UNKNOWN, NOTHING_TO_UNDO, PARKED, RESOLVED or DROPPED.",
    ),
    _count("attempt", "The number of the newest announced attempt, from 1; 0: its request couldn't be built."),
    _text("attempts", "The attempts as JSON, the first and the last ones in full."),
    _text("attempts_left_out", "The other attempts as JSON: how many ended with which status code."),
    _instant("next_attempt_time", "When the next attempt is due (UTC); null: none is waiting.", nullable=True),
    _flag("unsettled", "Whether an attempt ended unknown and nothing has proven since what became of it."),
    _count("refusals", "How many definite refusals of the budget are used."),
    Column("spent_us", BigInteger(), nullable=False, comment="How much time of the budget is used, in microseconds."),
    Column("unsent_us", BigInteger(), nullable=False, comment="For how long nothing could be sent, in microseconds."),
    Column(
        "request", LargeBinary(), nullable=False, comment="The serialised request: the same bytes on every attempt."
    ),
    Column("response", LargeBinary(), nullable=True, comment="The serialised response; null: there is none."),
    _text("last_error", "What the last attempt that didn't succeed said."),
    _text("last_code", "Its gRPC status code; empty: there was no answer."),
    Column(
        "key_forced",
        Boolean(),
        nullable=False,
        server_default=false(),
        comment="Whether a person had it repeated although the participant may have forgotten the key.",
    ),
    Column(
        "resolution",
        String(24),
        nullable=True,
        comment="What a person found: HAPPENED, DID_NOT_HAPPEN or UNDONE_BY_HAND; null: nobody had to look.",
    ),
    Column("resolved_by", Text(), nullable=True, comment="Who found it; null: nobody had to look."),
    _instant("created_time", "When it was announced (UTC)."),
    _instant("updated_time", "When it was last written (UTC)."),
    comment="One row per call that may be made: written before it leaves, and what is known of it since.",
)

dead_letter = Table(
    "dead_letter",
    metadata,
    Column("id", String(256), primary_key=True, comment="saga_id/step/direction/n."),
    _saga_id(),
    _count("position", "The order in which the saga's dead letters were opened, from 0."),
    Column("step", String(64), nullable=True, comment="The step; null: the saga as a whole."),
    Column(
        "direction", String(16), nullable=True, comment="ACTION, COMPENSATION or LOOKUP; null: the saga as a whole."
    ),
    Column("reason", String(32), nullable=False, comment="Why only a person can go on."),
    _text("last_error", "What happened last."),
    _instant("opened_time", "When it was opened (UTC)."),
    _instant("closed_time", "When it was closed (UTC); null: it is open.", nullable=True),
    Index("ix_dead_letter_saga_id", "saga_id"),
    _index_where("ix_dead_letter_open", "closed_time IS NULL", "opened_time"),
    comment="What only a person can decide.",
)

audit_entry = Table(
    "audit_entry",
    metadata,
    Column(
        "id", String(64), primary_key=True, comment="Made by the requester's node: a verb sent again finds its own."
    ),
    _saga_id(),
    Column("dead_letter_id", String(256), nullable=True, comment="The dead letter that it settled; null: none."),
    Column("verb", String(64), nullable=False, comment="What was done, for example RetryDeadLetter."),
    _text("actor", "Who did it, as authenticated; or unauthenticated: and the peer."),
    _text("claimed_actor", "Who the request said it was; only a claim."),
    _text("reason", "Why, in the actor's words."),
    _text("details", "What was decided, as JSON."),
    _instant("created_time", "When (UTC)."),
    Index("ix_audit_entry_saga_id", "saga_id"),
    Index("ix_audit_entry_created", "created_time", "id"),
    comment="What people did to sagas, written in the transaction that did it.",
)

participant = Table(
    "participant",
    metadata,
    Column("name", String(128), primary_key=True, comment="The participant's name."),
    _text("services", "The full names of its gRPC services, as a JSON list."),
    Column("descriptors", LargeBinary(), nullable=False, comment="The serialised FileDescriptorSet of its services."),
    _instant("created_time", "When it announced itself first (UTC)."),
    _instant("updated_time", "When it announced itself last (UTC)."),
    Column(
        "connection",
        LargeBinary(),
        nullable=True,
        comment="The serialised amends.v1.StaticConnection; null: it announces itself.",
    ),
    comment="The services that execute steps, by name.",
)

participant_instance = Table(
    "participant_instance",
    metadata,
    Column(
        "participant",
        String(128),
        ForeignKey("participant.name"),
        primary_key=True,
        comment="The participant that it is a process of.",
    ),
    Column("instance_id", String(128), primary_key=True, comment="Tells the participant's processes apart."),
    Column("address", String(256), nullable=False, comment="Where it is reached: host:port."),
    _count("capacity", "How many calls it takes at once; 0: it didn't say."),
    _instant("lease_end_time", "Until when it counts as there, unless it renews (UTC)."),
    comment="The processes of participants.",
)

CREATE TABLE IF NOT EXISTS amends_barrier (
    ledger TEXT NOT NULL,  -- the coordinator's ledger; keys are unique within it
    key TEXT NOT NULL,  -- the idempotency key of an action or a compensation
    saga TEXT NOT NULL,  -- the saga's id
    step TEXT NOT NULL,  -- the step's name
    direction TEXT NOT NULL,  -- action or compensation
    method TEXT NOT NULL,  -- package.Service/Method; empty where only a mark was left
    state TEXT NOT NULL,  -- running, started, done, rejected, null or undone
    request_hash BYTEA,  -- SHA-256 of the method and the request's bytes; null in a mark
    response BYTEA,  -- the response's bytes, once it is done
    abort_reason BYTEA,  -- UTF-8: done, but the saga is to be rolled back
    code TEXT,  -- of a recorded refusal, such as FAILED_PRECONDITION
    message TEXT,  -- of a recorded refusal, for people
    reason TEXT,  -- of a recorded refusal, for programs
    step_time TIMESTAMP WITH TIME ZONE NOT NULL,  -- UTC, by the ledger's clock: the action's first attempt; rows are purged by it
    create_time TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,  -- for people
    PRIMARY KEY (ledger, key)
);
CREATE INDEX IF NOT EXISTS amends_barrier_step_time ON amends_barrier (step_time);
CREATE TABLE IF NOT EXISTS amends_barrier_horizon (
    id SMALLINT NOT NULL CHECK (id = 1),
    forgotten_before TIMESTAMP WITH TIME ZONE NOT NULL,  -- UTC: of steps older than this nothing may be known any more
    PRIMARY KEY (id)
);

CREATE TABLE IF NOT EXISTS amends_barrier (
    ledger TEXT NOT NULL,
    key TEXT NOT NULL,
    saga_id TEXT NOT NULL,
    step TEXT NOT NULL,
    direction TEXT NOT NULL,
    method TEXT,
    state TEXT NOT NULL,
    request_hash BYTEA,
    response BYTEA,
    abort_reason BYTEA,
    code INTEGER,
    message TEXT,
    reason TEXT,
    step_time TIMESTAMP WITH TIME ZONE NOT NULL,
    create_time TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT now(),
    PRIMARY KEY (ledger, key)
);
CREATE TABLE IF NOT EXISTS amends_barrier_horizon (
    id INTEGER PRIMARY KEY,
    forgotten_before TIMESTAMP WITH TIME ZONE NOT NULL
);

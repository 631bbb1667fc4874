INSERT INTO amends_barrier
    (ledger, key, saga, step, direction, method, state, request_hash, step_time)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (ledger, key) DO NOTHING

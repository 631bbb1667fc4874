DELETE FROM amends_barrier
WHERE (ledger, key) IN (
    SELECT ledger, key FROM amends_barrier
    WHERE step_time < $1
    ORDER BY step_time LIMIT $2
    FOR UPDATE SKIP LOCKED
)

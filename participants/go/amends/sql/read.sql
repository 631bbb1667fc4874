SELECT state, request_hash, response, abort_reason, code, message, reason
FROM amends_barrier
WHERE ledger = $1 AND key = $2

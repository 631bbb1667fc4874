UPDATE amends_barrier
SET code = $3, message = $4, reason = $5
WHERE ledger = $1 AND key = $2

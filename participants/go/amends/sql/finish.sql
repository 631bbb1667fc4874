UPDATE amends_barrier
SET state = 'done', response = $3, abort_reason = $4
WHERE ledger = $1 AND key = $2

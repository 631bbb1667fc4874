package amends

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Tables makes the barrier's tables. Yours may be made by whatever makes your other tables.
//
//go:embed sql/tables.sql
var Tables string

//go:embed sql/claim.sql
var claimSQL string

//go:embed sql/read.sql
var readSQL string

//go:embed sql/finish.sql
var finishSQL string

//go:embed sql/refuse.sql
var refuseSQL string

//go:embed sql/horizon.sql
var horizonSQL string

//go:embed sql/bound_waits.sql
var boundWaitsSQL string

//go:embed sql/forget.sql
var forgetSQL string

//go:embed sql/purge.sql
var purgeSQL string

const lockNotAvailable = "55P03" // SQLSTATE of a lock_timeout

const purgeBatchSize = 1_000

// Purge forgets the steps that began more than olderThan ago, in small transactions, and answers how many rows it
// deleted. From then on a call of such a step is answered "nobody knows". Choose it longer than any saga takes, dead
// letters included.
func (barrier *Barrier) Purge(ctx context.Context, olderThan time.Duration) (int64, error) {
	if olderThan < time.Hour {
		return 0, fmt.Errorf("what is %v old may still be running: remember it for an hour at least", olderThan)
	}
	horizon := time.Now().Add(-olderThan)
	// Committed before anything is deleted: whoever finds a row gone finds the horizon moved.
	if _, err := barrier.pool.Exec(ctx, forgetSQL, horizon); err != nil {
		return 0, err
	}
	return purge(ctx, barrier.pool, horizon)
}

func purge(ctx context.Context, pool *pgxpool.Pool, horizon time.Time) (int64, error) {
	var deleted int64
	for {
		tag, err := pool.Exec(ctx, purgeSQL, horizon, purgeBatchSize)
		deleted += tag.RowsAffected()
		if err != nil || tag.RowsAffected() < purgeBatchSize {
			return deleted, err
		}
	}
}

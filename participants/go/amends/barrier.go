package amends

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Barrier keeps a participant's calls apart, with one row for each key in the participant's own database. The row is
// written in the transaction that does the work, so both are there or neither is. Its rules are those of
// docs/barrier.md.
type Barrier struct {
	pool        *pgxpool.Pool
	participant string
}

// NewBarrier makes a barrier on a database that has its tables (see Tables). Participant is the name that refusals
// carry.
func NewBarrier(pool *pgxpool.Pool, participant string) *Barrier {
	return &Barrier{pool: pool, participant: participant}
}

// Action answers a step's action: it does the work once per key, in the transaction that it hands to it, and keeps the
// response. Where the work returns a Rejected nothing of it stays, and the refusal is written down if the step's kind
// allows that. After any other error the coordinator asks again.
func Action[Response proto.Message](
	ctx context.Context,
	barrier *Barrier,
	request proto.Message,
	work func(ctx context.Context, tx pgx.Tx, step *Step) (Response, error),
) (Response, error) {
	return carryOut[Response](ctx, barrier, DirectionAction, func(step *Step) (*row, error) {
		call, err := newCall(ctx, step, request)
		if err != nil {
			return nil, err
		}
		answer, err := barrier.action(ctx, call, func(tx pgx.Tx) (proto.Message, error) { return work(ctx, tx, step) })
		var no *Rejected
		if errors.As(err, &no) && !no.sealed && step.seals() && codeNames[no.Code] != "" {
			return barrier.refuse(ctx, call, no)
		}
		return answer, err
	})
}

// Compensation answers a step's compensation. The work runs once per key, and only if there is something to undo;
// done is the action's response (nil if another participant was called with the action). Where the action never ran,
// a mark keeps it from running later.
func Compensation[Response, Done proto.Message](
	ctx context.Context,
	barrier *Barrier,
	request proto.Message,
	work func(ctx context.Context, tx pgx.Tx, step *Step, done Done) (Response, error),
) (Response, error) {
	return carryOut[Response](ctx, barrier, DirectionCompensation, func(step *Step) (*row, error) {
		call, err := newCall(ctx, step, request)
		if err != nil {
			return nil, err
		}
		return barrier.compensation(ctx, call, func(tx pgx.Tx, stored []byte) (proto.Message, error) {
			var done Done
			if step.ActionTarget == TargetSame {
				if done, err = parsed[Done](stored); err != nil {
					return nil, err
				}
			}
			return work(ctx, tx, step, done)
		})
	})
}

// Lookup answers a step's lookup: the action's response if it happened, else NotFound; sealed, since a mark keeps the
// action from running later. The action of a retriable step may still come, so nothing is written for it.
func Lookup[Response proto.Message](ctx context.Context, barrier *Barrier) (Response, error) {
	return carryOut[Response](ctx, barrier, DirectionLookup, func(step *Step) (*row, error) {
		return barrier.lookup(ctx, step)
	})
}

// row is what stands in the table for a key.
type row struct {
	state       string
	requestHash []byte
	response    []byte
	abortReason []byte
	code        *string
	message     *string
	reason      *string
}

// The states of a row. Nobody ever sees a "running" one: it is committed as "done" or not at all.
const (
	running  = "running"
	done     = "done"
	rejected = "rejected"
	null     = "null"
)

// call is one call with what its row remembers of it.
type call struct {
	step   *Step
	method string
	hash   []byte
}

func newCall(ctx context.Context, step *Step, request proto.Message) (*call, error) {
	path, _ := grpc.Method(ctx)
	method := strings.TrimPrefix(path, "/")
	// The coordinator sends the same bytes with every attempt; written again they are the same from one attempt to
	// the next.
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	hash.Write([]byte(method + "\x00"))
	hash.Write(content)
	return &call{step: step, method: method, hash: hash.Sum(nil)}, nil
}

func (barrier *Barrier) action(
	ctx context.Context, call *call, work func(pgx.Tx) (proto.Message, error),
) (*row, error) {
	return barrier.transaction(ctx, func(tx pgx.Tx) (*row, error) {
		standing, err := claim(ctx, tx, call.step, call.step.Key, running, call)
		if err != nil || standing != nil {
			return answerOf(standing, call, err)
		}
		response, err := work(tx)
		if err != nil {
			return nil, err
		}
		return finish(ctx, tx, call.step, response)
	})
}

// refuse writes a refusal down after the work was rolled back. Only then is it a promise.
func (barrier *Barrier) refuse(ctx context.Context, call *call, no *Rejected) (*row, error) {
	standing, err := barrier.transaction(ctx, func(tx pgx.Tx) (*row, error) {
		step := call.step
		standing, err := claim(ctx, tx, step, step.Key, rejected, call)
		if err != nil || standing != nil {
			return answerOf(standing, call, err)
		}
		_, err = tx.Exec(ctx, refuseSQL, step.Ledger, step.Key, codeNames[no.Code], storable(no.Message), storable(no.Reason))
		return nil, err
	})
	if err != nil || standing != nil {
		return standing, err
	}
	return nil, &Rejected{Code: no.Code, Reason: no.Reason, Message: no.Message, sealed: true}
}

// storable is a text without what PostgreSQL's TEXT does not take: what stands in a request may stand in a refusal, and a
// clear no must stay one.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "?"), "?")
}

func (barrier *Barrier) compensation(
	ctx context.Context, call *call, work func(tx pgx.Tx, stored []byte) (proto.Message, error),
) (*row, error) {
	return barrier.transaction(ctx, func(tx pgx.Tx) (*row, error) {
		step := call.step
		standing, err := claim(ctx, tx, step, step.Key, running, call)
		if err != nil || standing != nil {
			return answerOf(standing, call, err)
		}
		var action *row
		if step.ActionTarget == TargetSame {
			// Waits for an action that is running. If there is none the mark is written, and a later one is refused.
			if action, err = claim(ctx, tx, step, step.ActionKey, null, nil); err != nil {
				return nil, err
			}
			if action == nil || action.state == null || action.state == rejected {
				return finish(ctx, tx, step, nil) // nothing to undo
			}
		}
		var stored []byte
		if action != nil {
			stored = action.response
		}
		response, err := work(tx, stored)
		if err != nil {
			return nil, err
		}
		return finish(ctx, tx, step, response)
	})
}

func (barrier *Barrier) lookup(ctx context.Context, step *Step) (*row, error) {
	found, err := barrier.transaction(ctx, func(tx pgx.Tx) (*row, error) {
		if step.Kind == KindRetriable {
			return read(ctx, tx, step, step.ActionKey)
		}
		return claim(ctx, tx, step, step.ActionKey, null, nil)
	})
	if err != nil || (found != nil && found.state == done) {
		return found, err
	}
	if step.Kind == KindRetriable {
		return nil, &Rejected{Code: codes.NotFound, Reason: "NOT_YET", Message: step.ActionKey + " has not run yet"}
	}
	// Sealed only now, when the mark is committed.
	message := step.ActionKey + " has not run, and never will"
	return nil, &Rejected{Code: codes.NotFound, Reason: "NEVER", Message: message, sealed: true}
}

// answerOf is the answer to an action or compensation whose key has a row already.
func answerOf(standing *row, call *call, err error) (*row, error) {
	switch {
	case err != nil:
		return nil, err
	case standing.state == null:
		message := call.step.Key + " came after its compensation or lookup, so it never runs"
		return nil, &Rejected{Code: codes.FailedPrecondition, Reason: "HANGING_ACTION", Message: message, sealed: true}
	case string(standing.requestHash) != string(call.hash):
		return nil, unknownf("%s came with another request before, and this one was not carried out", call.step.Key)
	case standing.state == rejected:
		return nil, &Rejected{
			Code: codeOf(*standing.code), Reason: *standing.reason, Message: *standing.message, sealed: true,
		}
	default:
		return standing, nil
	}
}

// transaction commits what it is asked to do, or nothing of it. Where it can't even begin, that is certain.
func (barrier *Barrier) transaction(ctx context.Context, work func(pgx.Tx) (*row, error)) (*row, error) {
	var answer *row
	begun := false
	err := pgx.BeginTxFunc(ctx, barrier.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		begun = true
		if err := boundWaits(ctx, tx); err != nil {
			return err
		}
		var err error
		answer, err = work(tx)
		return err
	})
	if err != nil && !begun {
		slog.WarnContext(ctx, "the database can't be reached", "error", err)
		return nil, &TryLater{Message: "the participant's database can't be reached"}
	}
	var fault *pgconn.PgError
	if errors.As(err, &fault) && fault.Code == lockNotAvailable {
		return nil, unknownf("a copy of this call, or one that works on the same rows, is running")
	}
	return answer, err
}

// boundWaits lets a statement that waits for somebody else's give up a little before nobody waits for us any more.
func boundWaits(ctx context.Context, tx pgx.Tx) error {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return nil
	}
	left := max(time.Until(deadline)*9/10, time.Millisecond)
	_, err := tx.Exec(ctx, boundWaitsSQL, fmt.Sprintf("%dms", left.Milliseconds()))
	return err
}

// claim writes the first row of a key; nil if it did, else the row that stands there. It waits for a transaction that
// is writing one.
func claim(ctx context.Context, tx pgx.Tx, step *Step, key, state string, call *call) (*row, error) {
	direction, method, hash := DirectionAction, "", []byte(nil) // a mark
	if call != nil {
		direction, method, hash = step.Direction, call.method, call.hash
	}
	for range 3 {
		tag, err := tx.Exec(
			ctx, claimSQL, step.Ledger, key, step.SagaID, step.Name, direction, method, state, hash, step.StepTime,
		)
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() == 1 {
			return nil, notForgotten(ctx, tx, step)
		}
		if found, err := read(ctx, tx, step, key); err != nil || found != nil {
			return found, err
		}
	}
	return nil, unknownf("the row of %s comes and goes", key)
}

// notForgotten refuses to begin anything for a step whose rows may have been purged: it can't know what happened.
// Asked after the claim, never before: the horizon is committed before the rows are deleted, so whoever finds a row
// gone finds the horizon moved.
func notForgotten(ctx context.Context, tx pgx.Tx, step *Step) error {
	var horizon time.Time
	err := tx.QueryRow(ctx, horizonSQL).Scan(&horizon)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil && step.StepTime.Before(horizon) {
		return unknownf("%s is older than what is remembered here, so nobody knows whether it ran", step.Key)
	}
	return err
}

func read(ctx context.Context, tx pgx.Tx, step *Step, key string) (*row, error) {
	var found row
	err := tx.QueryRow(ctx, readSQL, step.Ledger, key).Scan(
		&found.state, &found.requestHash, &found.response, &found.abortReason,
		&found.code, &found.message, &found.reason,
	)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &found, err
}

func finish(ctx context.Context, tx pgx.Tx, step *Step, response proto.Message) (*row, error) {
	content := []byte{}
	if response != nil {
		var err error
		if content, err = proto.Marshal(response); err != nil {
			return nil, err
		}
	}
	_, err := tx.Exec(ctx, finishSQL, step.Ledger, step.Key, content, step.abortReason)
	return &row{state: done, response: content, abortReason: step.abortReason}, err
}

// carryOut is what all three have in common: the step is read before, and the answer made of the row after.
func carryOut[Response proto.Message](
	ctx context.Context, barrier *Barrier, direction string, decide func(*Step) (*row, error),
) (Response, error) {
	var none Response
	step, err := stepOf(ctx, direction)
	if err != nil {
		return none, err
	}
	decided, err := decide(step)
	if err != nil {
		return none, answered(ctx, barrier.participant, err)
	}
	if decided.abortReason != nil {
		setTrailer(ctx, abortTrailer, string(decided.abortReason))
	}
	response, err := parsed[Response](decided.response)
	return response, answered(ctx, barrier.participant, err)
}

func parsed[Content proto.Message](content []byte) (Content, error) {
	var none Content
	message := none.ProtoReflect().New().Interface().(Content)
	return message, proto.Unmarshal(content, message)
}

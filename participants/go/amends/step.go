// Package amends is what a participant needs to take part in sagas, beside its own code: it reads what the
// coordinator says about a call (step.go), answers so that the coordinator knows what an answer proves (answers.go),
// does the work of a key once and keeps late calls out (barrier.go), and says where the participant is (announce.go).
//
// It is no library: copy it and change it. It depends on gRPC, pgx and the generated code of amends.v1.
package amends

import (
	"context"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// What a call is in its step.
const (
	DirectionAction       = "action"
	DirectionCompensation = "compensation"
	DirectionLookup       = "lookup"
)

// What a step is in its saga.
const (
	KindCompensatable = "compensatable"
	KindReadOnly      = "read_only"
	KindPivot         = "pivot"
	KindRetriable     = "retriable"
)

// TargetSame says on a compensation that this participant was called with the action, too.
const TargetSame = "same"

const abortReasonLimitBytes = 512

// Step is one attempt of one call of a step.
type Step struct {
	SagaID string
	Name   string
	// Key is the same for every attempt: its work is done once. Keys are unique within a ledger.
	Key    string
	Ledger string
	// KeyUUID is the key as a UUID, for providers that want one.
	KeyUUID   string
	Kind      string
	Direction string
	Attempt   int
	// ActionKey, on a compensation and a lookup, is the key that the action was called with.
	ActionKey     string
	ActionKeyUUID string
	// ActionTarget is set on a compensation: TargetSame, or "other".
	ActionTarget string
	// StepTime is when the action's first attempt was announced, by the clock of the coordinator's ledger.
	StepTime time.Time

	abortReason []byte
}

// AbortSaga asks for the saga to be rolled back although this action succeeds; then return normally.
func (step *Step) AbortSaga(reason string) {
	cut := []byte(reason)
	if len(cut) > abortReasonLimitBytes {
		cut = cut[:abortReasonLimitBytes]
		for !utf8.Valid(cut) {
			cut = cut[:len(cut)-1]
		}
	}
	step.abortReason = cut
}

// seals tells whether a refusal of this step's action is written down and promised for ever. The others are asked
// again.
func (step *Step) seals() bool {
	return step.Kind == KindCompensatable || step.Kind == KindPivot
}

// stepOf reads a call's metadata. What can't be read is answered Unimplemented: a fault of the wiring, and nothing ran.
func stepOf(ctx context.Context, direction string) (*Step, error) {
	values, _ := metadata.FromIncomingContext(ctx)
	read := reader{values: values}
	step := &Step{
		SagaID:    read.text("amends-saga-id"),
		Name:      read.text("amends-step"),
		Key:       read.text("idempotency-key"),
		Ledger:    read.text("amends-ledger"),
		KeyUUID:   read.text("amends-key-uuid"),
		Kind:      read.text("amends-kind"),
		Direction: read.text("amends-direction"),
		Attempt:   read.number("amends-attempt"),
		StepTime:  read.instant("amends-step-time"),
	}
	if direction != DirectionAction {
		step.ActionKey = read.text("amends-action-key")
		step.ActionKeyUUID = read.text("amends-action-key-uuid")
	}
	if direction == DirectionCompensation {
		step.ActionTarget = read.text("amends-action-target")
	}
	if read.problem == nil && step.Direction != direction {
		read.problem = fmt.Errorf("this method is a step's %s, not its %s", direction, step.Direction)
	}
	if read.problem != nil {
		return nil, status.Errorf(codes.Unimplemented, "this call can't be carried out as a step: %v", read.problem)
	}
	return step, nil
}

// reader takes values out of metadata and keeps the first problem.
type reader struct {
	values  metadata.MD
	problem error
}

func (read *reader) text(key string) string {
	found := read.values.Get(key)
	if len(found) == 0 {
		read.fail(fmt.Errorf("%s is missing", key))
		return ""
	}
	return found[len(found)-1]
}

func (read *reader) number(key string) int {
	number, err := strconv.Atoi(read.text(key))
	if err != nil || number < 1 {
		read.fail(fmt.Errorf("%s is no number from 1", key))
	}
	return number
}

func (read *reader) instant(key string) time.Time {
	instant, err := time.Parse(time.RFC3339Nano, read.text(key))
	if err != nil {
		read.fail(fmt.Errorf("%s is no time of RFC 3339", key))
	}
	return instant
}

func (read *reader) fail(problem error) {
	if read.problem == nil {
		read.problem = problem
	}
}

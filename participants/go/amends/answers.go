package amends

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Trailers that say what an answer proves.
const (
	sealedTrailer   = "amends-sealed"
	executedTrailer = "amends-executed"
	abortTrailer    = "amends-abort-bin" // gRPC encodes what ends in "-bin": UTF-8 may be in it
)

// Rejected is a clear, final no: nothing was done for this call, and repeating it would not help. Return it from
// work; what the work did is rolled back. Code is one of those that gRPC itself never makes: FailedPrecondition,
// InvalidArgument, NotFound, OutOfRange, AlreadyExists. Any other proves nothing.
type Rejected struct {
	Code    codes.Code
	Reason  string // for programs, such as "TOO_FEW_POINTS"
	Message string // for people

	sealed bool // the barrier has written down that this key never runs
}

func (no *Rejected) Error() string { return no.Message }

// codeNames are what the codes of a Rejected are called in the table.
var codeNames = map[codes.Code]string{
	codes.FailedPrecondition: "FAILED_PRECONDITION",
	codes.InvalidArgument:    "INVALID_ARGUMENT",
	codes.NotFound:           "NOT_FOUND",
	codes.OutOfRange:         "OUT_OF_RANGE",
	codes.AlreadyExists:      "ALREADY_EXISTS",
}

func codeOf(name string) codes.Code {
	for code, known := range codeNames {
		if known == name {
			return code
		}
	}
	return codes.FailedPrecondition
}

// TryLater is "not now": nothing was done. It spends none of the step's budget.
type TryLater struct{ Message string }

func (later *TryLater) Error() string { return later.Message }

// unknown is an answer that proves nothing, so that the call comes again.
type unknown struct{ message string }

func (answer *unknown) Error() string { return answer.message }

func unknownf(format string, values ...any) error {
	return &unknown{message: fmt.Sprintf(format, values...)}
}

// answered makes of an error what is sent: a status, and the trailers that say what it proves. The text of an
// unexpected error stays here, in the log: it may hold what is nobody else's business.
func answered(ctx context.Context, participant string, err error) error {
	var no *Rejected
	var later *TryLater
	var nothingKnown *unknown
	switch {
	case err == nil:
		return nil
	case errors.As(err, &no):
		if no.sealed {
			setTrailer(ctx, sealedTrailer, "1")
		}
		refusal := status.New(no.Code, no.Message)
		reason := &errdetails.ErrorInfo{Domain: participant, Reason: no.Reason}
		if detailed, problem := refusal.WithDetails(reason); problem == nil {
			refusal = detailed
		}
		return refusal.Err()
	case errors.As(err, &later):
		setTrailer(ctx, executedTrailer, "no")
		return status.Error(codes.Unavailable, later.Message)
	case errors.As(err, &nothingKnown):
		return status.Error(codes.Aborted, nothingKnown.message)
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	default:
		slog.ErrorContext(ctx, "a call failed", "error", err)
		return status.Error(codes.Unknown, "the call failed; see the participant's log")
	}
}

func setTrailer(ctx context.Context, key, value string) {
	if err := grpc.SetTrailer(ctx, metadata.Pairs(key, value)); err != nil {
		slog.ErrorContext(ctx, "a trailer was not set", "key", key, "error", err)
	}
}

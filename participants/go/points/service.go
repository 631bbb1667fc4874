// Package points keeps the points of customers. What makes its methods steps of a saga is in package amends: here is
// only what the service is about.
package points

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"

	"amends.example/points/amends"
	pointsv1 "amends.example/points/gen/points/v1"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
)

// Tables makes the service's own tables.
//
//go:embed tables.sql
var Tables string

// Service answers the calls of points.v1.PointsService.
type Service struct {
	pointsv1.UnimplementedPointsServiceServer
	Barrier *amends.Barrier
}

// Spend takes points from a customer.
func (service *Service) Spend(ctx context.Context, request *pointsv1.SpendRequest) (*pointsv1.SpendResponse, error) {
	return amends.Action(ctx, service.Barrier, request,
		func(ctx context.Context, tx pgx.Tx, step *amends.Step) (*pointsv1.SpendResponse, error) {
			return spend(ctx, tx, step, request)
		})
}

// GiveBack undoes a spend: done is what Spend answered, nil if that was another participant.
func (service *Service) GiveBack(
	ctx context.Context, request *pointsv1.GiveBackRequest,
) (*pointsv1.GiveBackResponse, error) {
	return amends.Compensation(ctx, service.Barrier, request, giveBack)
}

// FindSpend tells what became of a spend.
func (service *Service) FindSpend(ctx context.Context, _ *pointsv1.FindSpendRequest) (*pointsv1.SpendResponse, error) {
	return amends.Lookup[*pointsv1.SpendResponse](ctx, service.Barrier)
}

func spend(
	ctx context.Context, tx pgx.Tx, step *amends.Step, request *pointsv1.SpendRequest,
) (*pointsv1.SpendResponse, error) {
	if request.GetPointCount() < 1 {
		return nil, refused(codes.InvalidArgument, "NO_POINTS", "spend at least one point")
	}
	var held, left int32
	var watched bool
	err := tx.QueryRow(ctx, heldSQL, request.GetCustomerId()).Scan(&held, &watched)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, refused(codes.NotFound, "NO_CUSTOMER", "there is no such customer")
	}
	if err != nil {
		return nil, err
	}
	if left = held - request.GetPointCount(); left < 0 {
		return nil, refused(codes.FailedPrecondition, "TOO_FEW_POINTS", "the customer has fewer points than that")
	}
	if watched {
		step.AbortSaga("this customer is watched") // done, but roll the saga back
	}
	spendID := "spend-" + rand.Text()
	_, err = tx.Exec(ctx, spendSQL, spendID, request.GetCustomerId(), request.GetPointCount())
	return &pointsv1.SpendResponse{SpendId: spendID, LeftCount: left}, err
}

func giveBack(
	ctx context.Context, tx pgx.Tx, _ *amends.Step, done *pointsv1.SpendResponse,
) (*pointsv1.GiveBackResponse, error) {
	if done == nil {
		return nil, refused(codes.FailedPrecondition, "NOT_MADE_HERE", "this spend was not made here")
	}
	_, err := tx.Exec(ctx, giveBackSQL, done.GetSpendId())
	return &pointsv1.GiveBackResponse{}, err
}

func refused(code codes.Code, reason, message string) error {
	return &amends.Rejected{Code: code, Reason: reason, Message: message}
}

const heldSQL = `SELECT point_count, watched FROM account WHERE customer_id = $1 FOR UPDATE`

const spendSQL = `
WITH taken AS (UPDATE account SET point_count = point_count - $3 WHERE customer_id = $2)
INSERT INTO spend (spend_id, customer_id, point_count) VALUES ($1, $2, $3)`

const giveBackSQL = `
WITH undone AS (UPDATE spend SET given_back = true WHERE spend_id = $1 RETURNING customer_id, point_count)
UPDATE account SET point_count = account.point_count + undone.point_count
FROM undone WHERE account.customer_id = undone.customer_id`

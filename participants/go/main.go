// Command points is a participant in Go: a gRPC service with a database of its own that takes part in sagas.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"amends.example/points/amends"
	pointsv1 "amends.example/points/gen/points/v1"
	"amends.example/points/points"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const participant = "points"

const finishBound = 10 * time.Second

func main() {
	coordinator := flag.String("coordinator", "localhost:7070", "where the coordinator is, HOST:PORT")
	database := flag.String("database", "", "URL of the PostgreSQL database; its tables are made if they aren't there")
	listen := flag.String("listen", "127.0.0.1:0", "where to listen, HOST:PORT; port 0 takes a free one")
	remember := flag.Duration("remember", 60*24*time.Hour, "how long keys are remembered; longer than any saga takes")
	advertise := flag.String("advertise", "", "where the coordinator reaches this process (default: where it listens)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *coordinator, *database, *listen, *advertise, *remember); err != nil {
		slog.Error("points ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, coordinator, database, listen, advertise string, remember time.Duration) error {
	pool, err := open(ctx, database)
	if err != nil {
		return err
	}
	defer pool.Close()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	if advertise == "" {
		advertise = listener.Addr().String()
	}
	barrier := amends.NewBarrier(pool, participant)
	go keepForgetting(ctx, barrier, remember)
	server, healthy := grpc.NewServer(), health.NewServer()
	pointsv1.RegisterPointsServiceServer(server, &points.Service{Barrier: barrier})
	grpc_health_v1.RegisterHealthServer(server, healthy)
	fmt.Printf("listening on %s\n", listener.Addr())

	served, announced := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	go func() {
		announced <- amends.Announce(ctx, coordinator, amends.Announcement{
			Participant: participant,
			InstanceID:  rand.Text(),
			Address:     advertise,
			Files:       []protoreflect.FileDescriptor{pointsv1.File_points_v1_points_proto},
		})
	}()
	select {
	case err = <-served:
	case err = <-announced: // the signal came, and nobody is sent here any more; or it never can be announced
	}
	healthy.Shutdown() // NOT_SERVING, to whoever asks
	finish(server)
	return err
}

// open makes the tables that aren't there yet, in one transaction.
func open(ctx context.Context, database string) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, amends.Tables+points.Tables); err != nil {
		pool.Close()
		return nil, errors.Join(errors.New("the tables could not be made"), err)
	}
	return pool, nil
}

// keepForgetting purges old keys at once and then every hour. Several processes may do it beside each other.
func keepForgetting(ctx context.Context, barrier *amends.Barrier, remember time.Duration) {
	for {
		if _, err := barrier.Purge(ctx, remember); err != nil && ctx.Err() == nil {
			slog.Error("old keys were not purged", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Hour):
		}
	}
}

// finish waits for the calls in hand, but not for ever.
func finish(server *grpc.Server) {
	forced := time.AfterFunc(finishBound, server.Stop)
	defer forced.Stop()
	server.GracefulStop()
}

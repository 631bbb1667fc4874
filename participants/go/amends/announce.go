package amends

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	amendsv1 "amends.example/points/gen/amends/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

const (
	announceTimeout   = 5 * time.Second
	deregisterTimeout = time.Second
	firstPause        = 100 * time.Millisecond
	longestPause      = 2 * time.Second
	connectTimeout    = 5 * time.Second
)

// With it a connection is given up that nobody acknowledges for ten seconds: a machine that vanished, or a NAT that
// forgot it, says nothing, and the system would go on sending for a quarter of an hour.
var alive = keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}

// Announcement is what the coordinator is told: who is here, where, and what it serves.
type Announcement struct {
	Participant string
	// InstanceID is this process's, new at every start.
	InstanceID string
	// Address is where the coordinator reaches this process: "10.0.0.7:7101".
	Address string
	// Capacity is how many calls it takes at once; 0: as many as come.
	Capacity int32
	// Files describe the services that it serves, one file each or several.
	Files []protoreflect.FileDescriptor
}

// Announce keeps the process announced until the context ends, then takes it out. It is a lease: repeated after a
// third of it, at once when the connection was lost, and with growing pauses while the coordinator can't be reached.
// The error is one that trying again doesn't mend.
func Announce(ctx context.Context, coordinator string, what Announcement) error {
	reconnecting := backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: longestPause}
	connection, err := grpc.NewClient(
		coordinator,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnecting, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(alive),
		grpc.WithDisableServiceConfig(), // the pauses below are the only repetition
		grpc.WithDisableRetry(),
	)
	if err != nil {
		return err
	}
	defer connection.Close()
	registry := amendsv1.NewRegistryServiceClient(connection)
	err = keepAnnounced(ctx, connection, registry, what.request())
	withdraw(registry, what)
	return err
}

func keepAnnounced(
	ctx context.Context,
	connection *grpc.ClientConn,
	registry amendsv1.RegistryServiceClient,
	request *amendsv1.RegisterParticipantRequest,
) error {
	pause := firstPause
	for {
		wait := pause/2 + rand.N(pause/2) // those who lost their coordinator together don't return together
		response, err := register(ctx, registry, request)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			wait, pause = response.GetLeaseTimeout().AsDuration()/3, firstPause
		case reasonOf(err) == "DESCRIPTOR_CONFLICT":
			return fmt.Errorf("another participant announces types of the same names with other content: %w", err)
		default:
			slog.Warn("not announced; trying until it is", "participant", request.GetName(), "error", err)
			pause = min(pause*2, longestPause)
		}
		waitConnected(ctx, connection, wait)
	}
}

// waitConnected waits, but no longer than the connection holds: a coordinator that starts again hears of us at once.
func waitConnected(ctx context.Context, connection *grpc.ClientConn, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if connection.GetState() == connectivity.Ready {
		connection.WaitForStateChange(ctx, connectivity.Ready)
	} else {
		<-ctx.Done()
	}
}

func register(
	ctx context.Context, registry amendsv1.RegistryServiceClient, request *amendsv1.RegisterParticipantRequest,
) (*amendsv1.RegisterParticipantResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	return registry.RegisterParticipant(ctx, request)
}

// withdraw takes the process out, so that nobody calls it while it finishes. If it can't, the end of its lease does.
func withdraw(registry amendsv1.RegistryServiceClient, what Announcement) {
	ctx, cancel := context.WithTimeout(context.Background(), deregisterTimeout)
	defer cancel()
	request := &amendsv1.DeregisterParticipantRequest{Name: what.Participant, InstanceId: what.InstanceID}
	if _, err := registry.DeregisterParticipant(ctx, request); err != nil {
		slog.Info("not taken out; its lease ends it", "participant", what.Participant, "error", err)
	}
}

func (what Announcement) request() *amendsv1.RegisterParticipantRequest {
	request := &amendsv1.RegisterParticipantRequest{
		Name: what.Participant,
		Instance: &amendsv1.ParticipantInstance{
			InstanceId: what.InstanceID, Address: what.Address, Capacity: what.Capacity,
		},
		Descriptors: &descriptorpb.FileDescriptorSet{},
	}
	seen := map[string]bool{}
	for _, file := range what.Files {
		for i := range file.Services().Len() {
			request.Services = append(request.Services, string(file.Services().Get(i).FullName()))
		}
		addFile(request.Descriptors, file, seen)
	}
	return request
}

// addFile adds a file after those that it imports.
func addFile(files *descriptorpb.FileDescriptorSet, file protoreflect.FileDescriptor, seen map[string]bool) {
	if seen[file.Path()] {
		return
	}
	seen[file.Path()] = true
	for i := range file.Imports().Len() {
		addFile(files, file.Imports().Get(i).FileDescriptor, seen)
	}
	files.File = append(files.File, protodesc.ToFileDescriptorProto(file))
}

func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, found := detail.(*errdetails.ErrorInfo); found {
			return info.GetReason()
		}
	}
	return ""
}

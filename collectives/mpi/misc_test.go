package mpi_test

import (
	"context"

	"github.com/pipetrain/pipetrain/collectives"
)

func signals(ctx context.Context, tr collectives.Transport) error              { return nil }
func closing(ctx context.Context, tr collectives.Transport) error              { return nil }
func failing(ctx context.Context, tr collectives.Transport, mode string) error { return nil }
func wrongCall(ctx context.Context, tr collectives.Transport) error            { return nil }

package collectives

import "context"

type patienceKey struct{}

// Patient marks a context: a Wait under it does not spin. It sleeps until the
// transport's background poller has moved the message, which costs some
// microseconds and leaves the cores to those who compute.
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patienceKey{}, (<-chan struct{})(nil))
}

// PatientUntil is Patient until urgent is closed: who then waits for the message wants it soon.
func PatientUntil(ctx context.Context, urgent <-chan struct{}) context.Context {
	return context.WithValue(ctx, patienceKey{}, urgent)
}

// Patience says whether waits under ctx are to sleep at once (for transports),
// and gives a channel that is closed when that ends (nil: never).
func Patience(ctx context.Context) (patient bool, urgent <-chan struct{}) {
	u, ok := ctx.Value(patienceKey{}).(<-chan struct{})
	if !ok {
		return false, nil
	}
	select {
	case <-u:
		return false, nil
	default:
		return true, u
	}
}

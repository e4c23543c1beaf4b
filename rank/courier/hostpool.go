package courier

import (
	"fmt"
	"sync"

	"github.com/pipetrain/pipetrain/kernels"
)

// HostPool keeps page-locked memory between messages: to lock it takes longer than
// to send it.
type HostPool struct {
	dev  kernels.Copier
	mu   sync.Mutex
	free map[int64][][]byte
	all  [][]byte
}

// NewHostPool returns an empty pool of a device's page-locked memory.
func NewHostPool(dev kernels.Copier) *HostPool {
	return &HostPool{dev: dev, free: map[int64][][]byte{}}
}

// Get returns memory of this many bytes.
func (p *HostPool) Get(bytes int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.free[bytes]; len(f) > 0 {
		p.free[bytes] = f[:len(f)-1]
		return f[len(f)-1], nil
	}
	b, err := p.dev.HostAlloc(bytes)
	if err != nil {
		return nil, fmt.Errorf("page-locked memory for messages: %w", err)
	}
	p.all = append(p.all, b)
	return b, nil
}

// Put gives memory back to the pool.
func (p *HostPool) Put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free != nil { // else the pool was closed while a message was given up
		p.free[int64(len(b))] = append(p.free[int64(len(b))], b)
	}
}

// Close gives all memory of the pool back to the device.
func (p *HostPool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.all {
		p.dev.FreeHost(b)
	}
	p.all, p.free = nil, nil
}

package driver

import "unsafe"

// Graph is captured work, ready to be launched.
type Graph struct {
	l    *Library
	exec uintptr
}

// Anything may be called by other threads while a stream is captured; work that
// they put into other streams is not captured.
const captureRelaxed = 2

// BeginCapture records what is put into the stream from here on; nothing is performed.
func (s *Stream) BeginCapture() error {
	return s.l.check("cuStreamBeginCapture_v2", syscall(s.l.fn.streamBeginCapture, s.handle, captureRelaxed))
}

// EndCapture ends BeginCapture and returns what was recorded.
func (s *Stream) EndCapture() (*Graph, error) {
	var graph uintptr
	if err := s.l.check("cuStreamEndCapture", syscall(s.l.fn.streamEndCapture, s.handle, uintptr(unsafe.Pointer(&graph)))); err != nil {
		return nil, err
	}
	g := &Graph{l: s.l}
	err := s.l.check("cuGraphInstantiateWithFlags", syscall(s.l.fn.graphInstantiate, uintptr(unsafe.Pointer(&g.exec)), graph, 0))
	syscall(s.l.fn.graphDestroy, graph)
	return g, err
}

// LaunchGraph puts all of the graph's work into the stream.
func (s *Stream) LaunchGraph(g *Graph) error {
	return s.l.check("cuGraphLaunch", syscall(s.l.fn.graphLaunch, g.exec, s.handle))
}

// Destroy frees the graph; launches under way end as they would.
func (g *Graph) Destroy() error {
	return g.l.check("cuGraphExecDestroy", syscall(g.l.fn.graphExecDestroy, g.exec))
}

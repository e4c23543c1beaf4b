package record

import (
	"strings"
	"testing"
)

func TestSharedCores(t *testing.T) {
	on := func(name string, lists ...string) (hosts []Host) {
		for _, l := range lists {
			hosts = append(hosts, Host{Name: name, Affinity: l})
		}
		return hosts
	}
	for _, c := range []struct {
		hosts []Host
		want  string
	}{
		{on("a", "0-1", "0-1"), ""},
		{on("a", "0", "1", "2-3"), ""}, // each bound to its own
		{on("a", "0-1", "0-1", "0-1", "0-1"), "4 ranks share 2 cores on a"},
		{append(on("a", "0-3", "0-3"), on("b", "0,8", "0,8", "8")...), "3 ranks share 2 cores on b"},
		{on("a", "", ""), ""}, // not known
	} {
		if got := SharedCores(c.hosts); c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%v: %q, want %q", c.hosts, got, c.want)
		}
	}
}

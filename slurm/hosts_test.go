package slurm

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestExpandHosts(t *testing.T) {
	for list, want := range map[string]string{
		"":                        "",
		"x":                       "x",
		"node[01-03,07],x":        "node01 node02 node03 node07 x",
		"n[8-11]":                 "n8 n9 n10 n11",
		"n[098-101]":              "n098 n099 n100 n101",
		"n[1,01,001]":             "n1 n01 n001",
		"r[1-2]n[0-1]":            "r1n0 r1n1 r2n0 r2n1",
		"n[3]-ib,n4-ib":           "n3-ib n4-ib",
		"a,a":                     "a a",
		"n[999999999999999999]":   "n999999999999999999",
		"gpu-a[5-5],login.site.x": "gpu-a5 login.site.x",
	} {
		got, err := ExpandHosts(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v %v, want %s", list, got, err, want)
		}
	}
	for list, want := range map[string]string{
		",":                                "empty name",
		"a,,b":                             "empty name",
		"a,":                               "empty name",
		"n[1-3":                            "not closed",
		"n1-3]":                            "without '['",
		"n[[1]]":                           "within brackets",
		"n[]":                              "no number",
		"n[1-]":                            "no number",
		"n[-1]":                            "no number",
		"n[a-b]":                           "no number",
		"n[1-2-3]":                         "no number",
		"n[3-1]":                           "backwards",
		"n[1-99999999]":                    "more than 65536",
		"n[1-999]m[1-999]":                 "more than 65536",
		"n[1-40000,2-40000]":               "more than 65536",
		"n[1-40000],m[1-40000]":            "more than 65536",
		"n[1111111111111111111]":           "no number",
		strings.Repeat("n", 300) + "[1-9]": "more than 255",
		"a b":                              "blank",
		"a\nb":                             "control character",
	} {
		if got, err := ExpandHosts(list); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "host list ") {
			t.Errorf("%q: %d hosts, error %v, want %q", list, len(got), err, want)
		}
	}
}

// Slurm's own program reads the lists in the same way.
func TestHostsAsSlurm(t *testing.T) {
	scontrol, err := exec.LookPath("scontrol")
	if err != nil {
		t.Skip("no scontrol here")
	}
	for _, list := range []string{"node[01-03,07],x", "n[8-11]", "n[098-101]", "r[1-2]n[0-1]"} {
		cmd := exec.Command(scontrol, "show", "hostnames", list)
		out, err := cmd.Output()
		if err != nil {
			t.Skipf("scontrol finds no cluster: %v", err)
		}
		got, err := ExpandHosts(list)
		if want := strings.Fields(string(out)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v %v, scontrol says %v", list, got, err, want)
		}
	}
}

func FuzzHosts(f *testing.F) {
	for _, s := range []string{"node[01-03,07],x", "r[1-2]n[0-1],,", "n[1-99999999]", "n[[", "9,10,011", "n[99999999999999999-999999999999999999]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := ExpandHosts(list)
		if err != nil {
			if len(hosts) > 0 || strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("%d hosts and %q", len(hosts), err)
			}
			return
		}
		if len(hosts) > MaxHosts {
			t.Fatalf("%d hosts", len(hosts))
		}
		again, err := ExpandHosts(strings.Join(hosts, ","))
		if err != nil || !slices.Equal(again, hosts) {
			t.Fatalf("%q are %q, one by one %q, %v", list, hosts, again, err)
		}
	})
}

package schedule

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// everySchedule calls f with schedules of all kinds and placements.
func everySchedule(t testing.TB, f func(name string, s *Schedule)) {
	t.Helper()
	for _, info := range Kinds() {
		for _, p := range []int{1, 2, 3, 4, 6} {
			for _, m := range []int{1, 2, 3, 4, 6, 8, 12} {
				s, err := Build(info.Name, Config{Ranks: p, Microbatches: m})
				if err != nil {
					continue
				}
				for _, placement := range Placements() {
					for _, concat := range []int{0, 1, 3} {
						if concat != 1 && (placement == PlaceFused || placement == PlaceNative) {
							continue // the same again
						}
						policy := Policy{placement, concat}
						split, err := TwoBP(s, policy)
						if err != nil {
							if info.Async {
								continue
							}
							t.Fatalf("%s p=%d m=%d %v: %v", info.Name, p, m, policy, err)
						}
						f(strings.Join([]string{info.Name, itoa(p), itoa(m), policy.String()}, " "), split)
					}
				}
			}
		}
	}
}

func itoa(n int) string { return strings.TrimSuffix((Op{n, ReduceGrad, 0, 0}).String(), "REDUCE_GRAD") }

func TestRoundTrips(t *testing.T) {
	everySchedule(t, func(name string, s *Schedule) {
		back, err := Parse(Format(s))
		if err != nil || !reflect.DeepEqual(s, back) {
			t.Fatalf("%s: text does not round-trip: %v\n%s", name, err, Format(s))
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		back = &Schedule{}
		if err := json.Unmarshal(text, back); err != nil || !reflect.DeepEqual(s, back) {
			t.Fatalf("%s: JSON does not round-trip: %v\n%s", name, err, text)
		}
		var table bytes.Buffer
		err = WriteCSV(&table, s)
		if concatenated(s) || s.Async != nil {
			if err == nil {
				t.Fatalf("%s: CSV of what it cannot hold", name)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s: CSV: %v", name, err)
		}
		back, err = ReadCSV(&table)
		if err != nil {
			t.Fatalf("%s: CSV: %v", name, err)
		}
		if !reflect.DeepEqual(s.Programs, back.Programs) || back.Stages != s.Stages {
			t.Fatalf("%s: CSV does not round-trip", name)
		}
		for k := range s.Microbatches {
			for stage := range s.Stages {
				if s.RankOf(stage, k) != back.RankOf(stage, k) {
					t.Fatalf("%s: CSV: stage %d of micro-batch %d moved", name, stage, k)
				}
			}
		}
	})
}

func concatenated(s *Schedule) bool {
	for _, program := range s.Programs {
		for _, o := range program {
			if o.Kind == BackwardWeight && o.First != o.Last {
				return true
			}
		}
	}
	return false
}

func TestLoweredRoundTrips(t *testing.T) {
	s, err := Lower(build(t, "1f1b", 3, 4, 0, Policy{Placement: PlaceEnd}))
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(Format(s))
	if err != nil || !reflect.DeepEqual(s, back) {
		t.Errorf("lowered schedule does not round-trip: %v", err)
	}
	if _, err := Lower(back); err == nil {
		t.Error("lowered twice")
	}
	if _, err := TwoBP(back, Policy{Placement: PlaceEnd}); err == nil {
		t.Error("2BP of a lowered schedule")
	}
}

// A lowered file of version 1 says nothing of waits, and names a window that nothing kept to: it is paced anew.
func TestOldFiles(t *testing.T) {
	want := lowerText(t, late)
	old := Format(want)
	for _, wait := range []string{" 0WAIT_F", " 1WAIT_F", " 2WAIT_F", " 1WAIT_B", " 2WAIT_B", " 3WAIT_B"} {
		for k := range 4 {
			old = strings.Replace(old, wait+itoa(k), "", 1)
		}
	}
	old = strings.Replace(old, "schedule 2", "schedule 1", 1)
	old = strings.Replace(old, "lowered\n", "lowered\nwindow 2\n", 1)
	got, err := Parse(old)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("text: %v\n%s", err, old)
	}
	got.Programs = nil
	for _, program := range want.Programs {
		got.Programs = append(got.Programs, slices.DeleteFunc(slices.Clone(program), func(o Op) bool { return o.Kind.IsWait() }))
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(`"version":2`), []byte(`"version":1,"window":2`), 1)
	if err := json.Unmarshal(text, got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON: %v\n%s", err, text)
	}
	if _, err := Parse(strings.Replace(old, "schedule 1", "schedule 2", 1)); err == nil || !strings.Contains(err.Error(), "window") {
		t.Errorf("a window in version 2: %v", err)
	}
	if _, err := Parse("pipetrain-schedule 1\nranks 1\nstages 9999999\nmicrobatches 999999\nplace 0\nlowered\nrank 0: 0F0\n"); err == nil {
		t.Error("tables of any size")
	}
}

func TestParseRefuses(t *testing.T) {
	const good = "pipetrain-schedule 1\nranks 1\nstages 1\nmicrobatches 1\nplace 0\nrank 0: 0F0 0B0\n"
	if _, err := Parse(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, reason string }{
		{"", "empty"},
		{"# nothing\n", "empty"},
		{"ranks 1\n", "first line"},
		{strings.Replace(good, "schedule 1", "schedule 3", 1), "version"},
		{strings.Replace(good, "ranks 1", "ranks x", 1), "line 2"},
		{strings.Replace(good, "ranks 1", "ranks 99999999999", 1), "line 2"},
		{strings.Replace(good, "ranks 1\n", "", 1), "ranks is missing"},
		{strings.Replace(good, "place 0", "place", 1), "the list is empty"},
		{strings.Replace(good, "place 0", "place -1", 1), "want numbers"},
		{strings.Replace(good, "0B0", "0BW0", 1), "older PyTorch"},
		{strings.Replace(good, "rank 0", "rank 1", 1), "ranks come in order"},
		{good + "rank 1: 0F0\n", "programs of 2 ranks"},
		{good + "ranks 2\n", "was given on line 2"},
		{good + "colour red\n", "unknown word"},
		{good + "async every 0 delay 1\n", "async"},
		{good + "name a b\n", "one word"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("Parse(%q) = %v; want an error with %q", c.text, err, c.reason)
		}
	}
}

func TestReadCSV(t *testing.T) {
	s, err := ReadCSV(strings.NewReader("0F0,0F1,,,0I0,0W0,0I1,0W1\n,1F0,1F1,1I0,1I1,1W0,1W1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
	if s.Ranks != 2 || s.Stages != 2 || s.Microbatches != 2 {
		t.Errorf("ranks %d, stages %d, micro-batches %d; want 2, 2, 2", s.Ranks, s.Stages, s.Microbatches)
	}
	for text, reason := range map[string]string{
		"":                            "no ops",
		"0F0,0B0,0W0\n":               "older letters",
		"0F0,0BW0\n":                  "older PyTorch",
		"0F0,x\n":                     "column 2",
		"0F0,0SEND_F0\n":              "no compute op",
		"0F0,0I0,0W0-1\n":             "no concatenated W",
		"0F0\n0B0\n":                  "too",
		"0F0,0B0\n2F0,2B0\n":          "stage 1 is on no rank",
		"0F0,0B0,0F1000000,0B1000000": "on no rank",
		"0F1,0B1\n":                   "micro-batch 0",
		"\"0F0\n":                     "CSV",
	} {
		if _, err := ReadCSV(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("ReadCSV(%q) = %v; want an error with %q", text, err, reason)
		}
	}
}

func FuzzParse(f *testing.F) {
	everySchedule(f, func(name string, s *Schedule) {
		if s.Ranks == 2 && s.Microbatches <= 4 {
			f.Add(Format(s))
			if l, err := Lower(s); err == nil {
				f.Add(Format(l))
			}
		}
	})
	f.Add("pipetrain-schedule 1\nranks 1\nstages 16777216\nmicrobatches 1048576\nplace 0\nrank 0:\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		back, err := Parse(Format(s))
		if err != nil || !reflect.DeepEqual(s, back) {
			t.Fatalf("does not round-trip: %v", err)
		}
		exercise(t, s)
	})
}

func FuzzReadCSV(f *testing.F) {
	everySchedule(f, func(name string, s *Schedule) {
		if s.Ranks == 2 && s.Microbatches <= 4 && !concatenated(s) && s.Async == nil {
			var b bytes.Buffer
			if err := WriteCSV(&b, s); err != nil {
				f.Fatal(err)
			}
			f.Add(b.String())
		}
	})
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadCSV(strings.NewReader(text))
		if err == nil {
			exercise(t, s)
		}
	})
}

// exercise calls everything that takes a schedule; none may panic or hang, and
// what Check accepts must run.
func exercise(t *testing.T, s *Schedule) {
	checked := Check(s)
	timeline, err := Simulate(s, Units())
	if checked == nil && err != nil {
		t.Fatalf("Check accepts what Simulate refuses: %v", err)
	}
	if err == nil {
		_ = Draw(&bytes.Buffer{}, timeline, DrawOptions{})
	}
	PeakMicrobatches(s)
	if checked != nil || s.Lowered {
		return
	}
	for _, placement := range Placements() {
		split, err := TwoBP(s, Policy{Placement: placement, Concat: 2})
		if err != nil && s.Async == nil {
			t.Fatalf("%s: %v", placement, err)
		}
		if err == nil {
			if err := Check(split); err != nil {
				t.Fatalf("%s makes a valid schedule invalid: %v\n%s", placement, err, Format(s))
			}
		}
	}
	if _, err := Lower(s); err != nil {
		t.Fatalf("a valid schedule cannot be lowered: %v", err)
	}
}

func TestReadTellsTheForm(t *testing.T) {
	s := build(t, "zb-v", 3, 5, 0, Policy{})
	for _, form := range []Form{FormText, FormJSON, FormCSV} {
		text, err := Write(s, form)
		if err != nil {
			t.Fatal(err)
		}
		back, got, err := Read(text)
		if err != nil || got != form || !reflect.DeepEqual(back.Programs, s.Programs) {
			t.Errorf("%s: read as %q: %v", form, got, err)
		}
	}
	if _, form, err := Read([]byte("# mine\n\n" + Format(s))); err != nil || form != FormText {
		t.Errorf("with a comment first: %q, %v", form, err)
	}
	for _, text := range []string{"", "  \n", "# only\n", "{}", "{", "0F0\n", "hello", "\x00\xff"} {
		if s, form, err := Read([]byte(text)); err == nil && Check(s) == nil {
			t.Errorf("Read(%q) as %q: no error", text, form)
		}
	}
	if _, err := Write(s, "xml"); err == nil {
		t.Error("written as xml")
	}
}

package schedule

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// The orders of torch.distributed.pipelining 2.11, as its compute-only CSV: files are named
// kind-ranks-microbatches-chunks. Its overlapped forward and backward stand one after the other.
func TestTorchOrders(t *testing.T) {
	files, err := filepath.Glob("testdata/torch/*.csv")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".csv")
		t.Run(name, func(t *testing.T) {
			fields := strings.Split(name, "-")
			var numbers [3]int
			for i := range numbers {
				if numbers[i], err = strconv.Atoi(fields[len(fields)-3+i]); err != nil {
					t.Fatal(err)
				}
			}
			kind := strings.Join(fields[:len(fields)-3], "-")
			file, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			want, err := ReadCSV(file)
			if err != nil {
				t.Fatal(err)
			}
			got := build(t, kind, numbers[0], numbers[1], numbers[2], Policy{})
			for r := range want.Programs {
				if !reflect.DeepEqual(got.Programs[r], want.Programs[r]) {
					t.Errorf("rank %d:\ngot  %v\nwant %v", r, got.Programs[r], want.Programs[r])
				}
			}
			if !reflect.DeepEqual(got.Place, want.Place) {
				t.Errorf("stages on ranks %v, want %v", got.Place, want.Place)
			}
		})
	}
}

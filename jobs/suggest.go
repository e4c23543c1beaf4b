package jobs

import "strings"

// suggestKey returns the key or table that a wrong name most likely means,
// empty when none is near: the same leaf in another table first, then by edit distance.
func suggestKey(name string) string {
	leaf := name[strings.LastIndexByte(name, '.')+1:]
	var candidates, sameLeaf []string
	for _, k := range keyList {
		candidates = append(candidates, k.Name)
		if strings.EqualFold(k.leaf(), leaf) || squash(k.leaf()) == squash(leaf) {
			sameLeaf = append(sameLeaf, k.Name)
		}
	}
	// "kind" stands in many tables: the leaf decides only when it is one key's.
	if len(sameLeaf) == 1 {
		return sameLeaf[0]
	}
	if len(sameLeaf) > 1 {
		if s := nearest(name, sameLeaf); s != "" {
			return s
		}
	}
	if !strings.Contains(name, ".") {
		for _, t := range tables[1:] {
			candidates = append(candidates, t.Name)
		}
	}
	if s := nearest(name, candidates); s != "" {
		return s
	}
	// The leaf alone, in the table named or in any.
	table, _, _ := strings.Cut(name, ".")
	var near string
	best := 1 << 30
	for _, k := range keyList {
		d := distance(strings.ToLower(leaf), k.leaf())
		if d > slack(leaf) {
			continue
		}
		if k.table() == table {
			d--
		}
		if d < best {
			best, near = d, k.Name
		}
	}
	return near
}

// nearest returns the candidate with the least edit distance to s, empty when
// all are too far to be meant.
func nearest(s string, candidates []string) string {
	near, best := "", slack(s)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d < best {
			near, best = c, d
		}
	}
	return near
}

// slack is the number of edits within which a name of this length may be meant:
// with short names, more would find a likeness in anything.
func slack(s string) int {
	switch n := len(s); {
	case n <= 2:
		return 0
	case n <= 4:
		return 1
	case n <= 9:
		return 2
	}
	return 3
}

// squash drops what spellings of one name differ in: gpus-per-node, gpusPerNode.
func squash(s string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(s))
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 200 || len(y) > 200 {
		return 1 << 20
	}
	two, one, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one, row = one, row, two
	}
	return one[len(y)]
}

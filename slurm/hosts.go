package slurm

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxHosts bounds what a host list may stand for: a slip such as [1-99999999]
// must not fill the memory.
const MaxHosts = 1 << 16

// maxDigits bounds a number in a list: 18 digits fit 64 bits.
const maxDigits = 18

// maxName is the longest name a host can have, and bounds the memory with MaxHosts.
const maxName = 255

// ExpandHosts returns the names that a host list of Slurm stands for, in its
// order: "node[01-03,07],x" is node01, node02, node03, node07, x. A name may have
// several brackets ("rack[1-2]n[0-3]"); the last one counts fastest.
func ExpandHosts(list string) ([]string, error) {
	if list == "" {
		return nil, nil
	}
	var hosts []string
	for rest := list; ; {
		item, more, err := cutHost(rest)
		if err == nil {
			hosts, err = expandHost(hosts, item)
		}
		if err != nil {
			return nil, fmt.Errorf("host list %q: %w", shorten(list), err)
		}
		if more == "" {
			return hosts, nil
		}
		rest = more[1:]
	}
}

// cutHost splits a list at its first comma outside of brackets; rest begins with it.
func cutHost(list string) (item, rest string, err error) {
	inside := false
	for i, c := range []byte(list) {
		switch {
		case c == '[' && inside:
			return "", "", fmt.Errorf("'[' within brackets at byte %d", i+1)
		case c == ']' && !inside:
			return "", "", fmt.Errorf("']' without '[' at byte %d", i+1)
		case c == '[' || c == ']':
			inside = c == '['
		case c == ',' && !inside:
			return list[:i], list[i:], nil
		case c <= ' ' || c == 0x7f:
			return "", "", fmt.Errorf("a blank or control character at byte %d", i+1)
		}
	}
	if inside {
		return "", "", fmt.Errorf("'[' is not closed")
	}
	return list, "", nil
}

// expandHost appends the names of one item.
func expandHost(hosts []string, item string) ([]string, error) {
	if item == "" {
		return nil, fmt.Errorf("an empty name between commas")
	}
	names := []string{""}
	for item != "" {
		open := strings.IndexByte(item, '[')
		if open < 0 {
			open = len(item)
		}
		if len(names[0])+open > maxName {
			return nil, fmt.Errorf("a name of more than %d bytes", maxName)
		}
		for i := range names {
			names[i] += item[:open]
		}
		if item = item[open:]; item == "" {
			break
		}
		end := strings.IndexByte(item, ']') // cutHost has seen it
		numbers, err := expandRanges(item[1:end], MaxHosts/len(names))
		if err != nil {
			return nil, err
		}
		var longer []string
		for _, n := range names {
			for _, x := range numbers {
				longer = append(longer, n+x)
			}
		}
		names, item = longer, item[end+1:]
	}
	for _, n := range names {
		if len(n) > maxName {
			return nil, fmt.Errorf("a name of more than %d bytes", maxName)
		}
	}
	if len(hosts)+len(names) > MaxHosts {
		return nil, fmt.Errorf("more than %d hosts", MaxHosts)
	}
	return append(hosts, names...), nil
}

// expandRanges returns the numbers of what stands between brackets, as text with leading zeros.
func expandRanges(ranges string, limit int) ([]string, error) {
	var out []string
	for r := range strings.SplitSeq(ranges, ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		lo, err1 := hostNumber(from)
		hi, err2 := hostNumber(to)
		switch {
		case err1 != nil || err2 != nil:
			return nil, fmt.Errorf("[%s]: %q is no number and no range of numbers", ranges, r)
		case hi < lo:
			return nil, fmt.Errorf("[%s]: the range %q runs backwards", ranges, r)
		case hi-lo >= int64(limit-len(out)):
			return nil, fmt.Errorf("more than %d hosts", MaxHosts)
		}
		for n := lo; n <= hi; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return out, nil
}

func hostNumber(s string) (int64, error) {
	if len(s) == 0 || len(s) > maxDigits || strings.Trim(s, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(s, 10, 64)
}

func shorten(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

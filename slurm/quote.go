package slurm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// arrayMark stands for the number of an array's task, as in Slurm's file names.
const arrayMark = "%a"

// plain is what neither a shell nor sbatch changes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@,=+%-]+$`)

// Quote makes one word of a shell's command line. A word that holds arrayMark is always
// in quotes, so that the variable can be put between them.
func Quote(word string) string {
	if plain.MatchString(word) && !strings.Contains(word, arrayMark) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// directive makes one value of a #SBATCH line, where sbatch knows double quotes and
// the backslash, and takes # for the start of a comment.
func directive(value string) string {
	if plain.MatchString(value) {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// oneLine refuses what would end a line of the script, or be shown as something else.
func oneLine(s string) error {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("slurm: %q has a line break or another control character, or is no UTF-8: it cannot stand in a batch script", s)
	}
	return nil
}

var timeLimit = regexp.MustCompile(`^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$`)

// limitSeconds reads a time limit as Slurm writes it: minutes, MM:SS, HH:MM:SS, D-HH,
// D-HH:MM, D-HH:MM:SS. ok is false where there is no limit.
func limitSeconds(s string) (seconds int, ok bool) {
	m := timeLimit.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v } // absent: 0
	switch {
	case m[1] != "":
		return n(1)*86400 + n(2)*3600 + n(3)*60 + n(4), true
	case m[4] != "":
		return n(2)*3600 + n(3)*60 + n(4), true
	}
	return n(2)*60 + n(3), true
}

package schedule

import (
	"encoding/json"
	"fmt"
)

// jsonSchedule is the JSON form of a schedule; its ops are their texts.
type jsonSchedule struct {
	Format       string  `json:"format"`
	Version      int     `json:"version"`
	Name         string  `json:"name,omitempty"`
	Ranks        int     `json:"ranks"`
	Stages       int     `json:"stages"`
	Microbatches int     `json:"microbatches"`
	Place        [][]int `json:"place"`
	Directions   []int   `json:"directions,omitempty"` // []uint8 would be base64
	Async        *Async  `json:"async,omitempty"`
	Lowered      bool    `json:"lowered,omitempty"`
	Programs     [][]Op  `json:"programs"`
}

// MarshalJSON writes the schedule with format and version, ops as their texts.
func (s Schedule) MarshalJSON() ([]byte, error) {
	j := jsonSchedule{
		Format: textMagic, Version: TextVersion,
		Name: s.Name, Ranks: s.Ranks, Stages: s.Stages, Microbatches: s.Microbatches,
		Place: s.Place, Async: s.Async, Lowered: s.Lowered, Programs: s.Programs,
	}
	for _, d := range s.Direction {
		j.Directions = append(j.Directions, int(d))
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON writes; like Parse it leaves Check to the caller.
func (s *Schedule) UnmarshalJSON(text []byte) error {
	var j jsonSchedule
	if err := json.Unmarshal(text, &j); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	if j.Format != textMagic || j.Version < 1 || j.Version > TextVersion {
		return fmt.Errorf("schedule: want format %q, version 1 to %d; not %q, version %d", textMagic, TextVersion, clip(j.Format), j.Version)
	}
	*s = Schedule{
		Name: j.Name, Ranks: j.Ranks, Stages: j.Stages, Microbatches: j.Microbatches,
		Place: j.Place, Async: j.Async, Lowered: j.Lowered, Programs: j.Programs,
	}
	for k, d := range j.Directions {
		if d < 0 || d > 255 {
			return fmt.Errorf("schedule: direction %d of micro-batch %d: want 0 to 255", d, k)
		}
		s.Direction = append(s.Direction, uint8(d))
	}
	return s.update(j.Version)
}

package schedule

// channels numbers the channels of a schedule: sender, receiver, kind, stage.
type channels struct {
	s     *Schedule
	alias []int // by direction × stages × kind: the number in the first direction with the same two ranks
}

func newChannels(s *Schedule) *channels {
	c := &channels{s: s, alias: make([]int, len(s.Place)*s.Stages*2)}
	for d, place := range s.Place {
		for stage := range s.Stages {
			for i, other := range []int{stage + 1, stage - 1} {
				at := (d*s.Stages+stage)*2 + i
				c.alias[at] = at
				for e := range d {
					if other >= 0 && other < s.Stages && s.Place[e][stage] == place[stage] && s.Place[e][other] == place[other] {
						c.alias[at] = (e*s.Stages+stage)*2 + i
						break
					}
				}
			}
		}
	}
	return c
}

// index returns the number of a send's channel.
func (c *channels) index(send Op) int {
	d := 0
	if c.s.Direction != nil {
		d = int(c.s.Direction[send.First])
	}
	return c.alias[(d*c.s.Stages+send.Stage)*2+int(kinds[send.Kind].way)]
}

// count returns how many numbers there are.
func (c *channels) count() int { return len(c.alias) }

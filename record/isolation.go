package record

import (
	"errors"
	"fmt"
	"slices"
)

// ErrFloor is wrapped by the errors of CheckFloor.
var ErrFloor = errors.New("not an isolation floor")

// The isolation tiers, weakest first. All but TierNone may be asked for as a
// floor.
const (
	TierNone      = "none"
	TierProcess   = "process"
	TierContainer = "container"
	TierKernel    = "kernel"
	TierVM        = "vm"
)

var tiers = []string{TierNone, TierProcess, TierContainer, TierKernel, TierVM}

// CheckFloor reports whether floor is one that a caller may ask for: empty, or
// a tier above TierNone, in exactly this spelling. Errors wrap ErrFloor.
func CheckFloor(floor string) error {
	if floor == "" || slices.Contains(tiers[1:], floor) {
		return nil
	}
	return fmt.Errorf("%w: %.40q", ErrFloor, floor)
}

// MeetsFloor reports whether a call at the tier satisfies the floor. Without a
// floor every tier does. A tier that is not one of the constants, the empty one
// included, satisfies no floor, and nothing satisfies a floor that CheckFloor
// refuses.
func MeetsFloor(tier, floor string) bool {
	if floor == "" {
		return true
	}
	want := slices.Index(tiers, floor)
	return want > 0 && slices.Index(tiers, tier) >= want
}

package workspaced

import (
	"math/rand/v2"
	"time"
)

const (
	firstDelay = 50 * time.Millisecond
	lastDelay  = 2 * time.Second
)

// backoff gives exponential delays with jitter: between half and all of 50 ms, 100 ms, 200 ms ... 2 s.
type backoff struct{ attempt int }

func (b *backoff) reset() { b.attempt = 0 }

// next is the next delay; atLeast is what the server asked for.
func (b *backoff) next(atLeast time.Duration) time.Duration {
	delay := min(lastDelay, firstDelay<<min(b.attempt, 16))
	b.attempt++
	return max(atLeast, time.Duration(float64(delay)*(0.5+rand.Float64()/2)))
}

package workspaced

// signal wakes everybody who waits for a change of something that a mutex guards. All methods are called with that mutex held.
type signal struct{ waiting chan struct{} }

// wait is a channel that the next fire closes.
func (s *signal) wait() <-chan struct{} {
	if s.waiting == nil {
		s.waiting = make(chan struct{})
	}
	return s.waiting
}

// fire wakes who waits.
func (s *signal) fire() {
	if s.waiting != nil {
		close(s.waiting)
		s.waiting = nil
	}
}

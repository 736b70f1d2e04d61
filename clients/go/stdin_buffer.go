package workspaced

const (
	stdinLimitBytes = mib
	chunkBytes      = 256 << 10
)

// stdinBuffer keeps standard input until the guest has it, so that a broken connection loses and doubles nothing: the bytes
// between what was acknowledged and what was written, by offset.
type stdinBuffer struct {
	chunks [][]byte
	acked  int64 // offset of the first byte that is kept
	end    int64 // offset of the next byte to be written
}

// begin sets the offset of the first byte; only while nothing was written.
func (b *stdinBuffer) begin(offset int64) {
	if b.end == b.acked {
		b.acked, b.end = offset, offset
	}
}

// room is how many bytes may be appended now.
func (b *stdinBuffer) room() int { return stdinLimitBytes - int(b.end-b.acked) }

// append keeps the chunk, which must not change any more.
func (b *stdinBuffer) append(chunk []byte) {
	if len(chunk) > 0 {
		b.chunks = append(b.chunks, chunk)
		b.end += int64(len(chunk))
	}
}

// acknowledge forgets what is below an offset; it returns whether that was anything. No offset is beyond the end.
func (b *stdinBuffer) acknowledge(offset int64) bool {
	grown := min(offset, b.end) - b.acked
	if grown <= 0 {
		return false
	}
	b.acked += grown
	for grown > 0 {
		first := b.chunks[0]
		if int64(len(first)) > grown {
			b.chunks[0] = first[grown:]
			break
		}
		grown -= int64(len(first))
		b.chunks[0] = nil
		b.chunks = b.chunks[1:]
	}
	return true
}

// from is the next piece of what is kept at an offset; nil when there is none. Its offset is not below the one asked for.
func (b *stdinBuffer) from(offset int64) (int64, []byte) {
	position := b.acked
	for _, chunk := range b.chunks {
		end := position + int64(len(chunk))
		if end > offset {
			skip := max(0, offset-position)
			return position + skip, chunk[skip:]
		}
		position = end
	}
	return offset, nil
}

// clear forgets everything: nobody will read it.
func (b *stdinBuffer) clear() {
	b.chunks = nil
	b.acked = b.end
}

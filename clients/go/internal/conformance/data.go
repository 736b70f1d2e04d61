package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
)

const (
	mib        = 1 << 20
	shownBytes = 65536
)

// data is the DATA of an argument as a stream of at most 1 MiB a read.
func (a args) data(name string) io.Reader {
	a.need(name)
	var text string
	if json.Unmarshal(a[name], &text) == nil {
		return bytes.NewReader([]byte(text))
	}
	var form struct {
		Base64  *string         `json:"base64"`
		Pattern json.RawMessage `json:"pattern"`
		Size    int64           `json:"size"`
	}
	a.into(name, &form)
	if form.Base64 != nil {
		decoded, err := base64.StdEncoding.DecodeString(*form.Base64)
		if err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		return bytes.NewReader(decoded)
	}
	var seed string
	if json.Unmarshal(form.Pattern, &seed) != nil {
		seed = string(form.Pattern) // a number
	}
	return io.LimitReader(&pattern{block: block(seed)}, form.Size)
}

func block(seed string) []byte {
	var made bytes.Buffer
	for k := range mib / sha256.Size {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s:%d", seed, k))
		made.Write(sum[:])
	}
	return made.Bytes()
}

// pattern is an endless reader: MiB number i is the block rotated left by i bytes.
type pattern struct {
	block    []byte
	position int64
}

func (p *pattern) Read(target []byte) (int, error) {
	number, within := p.position/mib, p.position%mib
	from := (number + within) % mib
	n := copy(target, p.block[from:from+min(mib-from, mib-within)])
	p.position += int64(n)
	return n, nil
}

// sink takes bytes and tells of them as results do.
type sink struct {
	size int64
	hash hash.Hash
	kept []byte
}

func newSink() *sink { return &sink{hash: sha256.New()} }

func (s *sink) Write(data []byte) (int, error) {
	s.size += int64(len(data))
	s.hash.Write(data)
	if s.size <= shownBytes {
		s.kept = append(s.kept, data...)
	}
	return len(data), nil
}

func (s *sink) result() object {
	shown := object{"size": s.size, "sha256": hex.EncodeToString(s.hash.Sum(nil))}
	if s.size <= shownBytes {
		shown["base64"] = base64.StdEncoding.EncodeToString(s.kept)
	}
	return shown
}

func dataOf(data []byte) object {
	s := newSink()
	_, _ = s.Write(data) // never fails
	return s.result()
}

package workspaced

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/iotest"
)

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

func TestWriteAndRead(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	data := pattern(3<<20 + 17)
	info, err := ws.Files().Write(ctx, "deep/er/data.bin", data, Mode(0o640))
	if err != nil {
		t.Fatal(err)
	}
	if info.SHA256 != sum(data) || info.Size() != int64(len(data)) || info.Mode() != 0o640 || info.Name() != "data.bin" {
		t.Errorf("written: %+v", info)
	}
	for _, part := range []struct{ offset, limit, want int }{
		{0, -1, len(data)}, {5, 10, 10}, {1 << 20, 1 << 20, 1 << 20}, {len(data) - 3, 100, 3}, {len(data), -1, 0},
		{len(data) + 5, 7, 0}, {9, 0, 0},
	} {
		got, err := ws.Files().Read(ctx, "deep/er/data.bin", Offset(int64(part.offset)), Limit(int64(part.limit)))
		start := min(part.offset, len(data))
		if err != nil || !bytes.Equal(got, data[start:start+part.want]) {
			t.Errorf("read %d+%d: %d bytes, %v", part.offset, part.limit, len(got), err)
		}
	}
}

func TestWriteOptions(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	files := ws.Files()
	if _, err := files.Write(ctx, "f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	old := sum([]byte("old"))
	for name, test := range map[string]struct {
		path   string
		option WriteOption
		want   error
		is     error
	}{
		"create only":          {"f", CreateOnly(), ErrFileExists, fs.ErrExist},
		"create only, new":     {"g", CreateOnly(), nil, nil},
		"if match":             {"f", IfMatch(strings.Repeat("0", 64)), ErrContentChanged, ErrAborted},
		"hash":                 {"f", ContentSHA256(old), ErrHashMismatch, ErrDataLoss},
		"no parents":           {"no/f", NoParents(), ErrFileNotFound, fs.ErrNotExist},
		"below a file":         {"f/g", NoSync(), ErrNotADirectory, ErrFailedPrecondition},
		"over a directory":     {".", NoSync(), ErrIsADirectory, nil},
		"not below /proc":      {"/proc/nothing", NoSync(), nil, nil},
		"of an invalid sha256": {"f", ContentSHA256("zz"), ErrInvalidArgument, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := files.Write(ctx, test.path, []byte("new"), test.option)
			if strings.HasPrefix(test.path, "/proc") {
				if err == nil {
					t.Error("it was written")
				}
				return
			}
			if !errors.Is(err, test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if data, err := files.Read(ctx, "f"); err != nil || string(data) != "old" {
				t.Errorf("the old file is %q, %v", data, err)
			}
		})
	}
	if _, err := files.Write(ctx, "f", []byte("new"), IfMatch(old), ContentSHA256(sum([]byte("new")))); err != nil {
		t.Error(err)
	}
}

func TestWriteFromGoesOnWhereItWas(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	far := relay.through(ws)
	data := pattern(12 << 20)
	for name, write := range map[string]func(context.Context) (*FileInfo, error){
		"bytes": func(ctx context.Context) (*FileInfo, error) { return far.Files().Write(ctx, "bytes", data) },
		"seeker": func(ctx context.Context) (*FileInfo, error) {
			return far.Files().WriteFrom(ctx, "seeker", bytes.NewReader(data))
		},
	} {
		t.Run(name, func(t *testing.T) {
			relay.cutAfter(5 << 20)
			info, err := write(testContext(t))
			if err != nil || info.SHA256 != sum(data) {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

func TestWriteFromOfAReaderThatGivesOnceIsUnavailable(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	far := relay.through(ws)
	ctx := testContext(t)
	if _, err := ws.Files().Write(ctx, "once", []byte("old")); err != nil {
		t.Fatal(err)
	}
	relay.cutAfter(5 << 20)
	_, err := far.Files().WriteFrom(ctx, "once", onlyReader{bytes.NewReader(pattern(12 << 20))})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if data, err := ws.Files().Read(ctx, "once"); err != nil || string(data) != "old" {
		t.Errorf("the old file is %q, %v", data, err)
	}
	if _, err := far.Files().WriteFrom(ctx, "once", onlyReader{iotest.OneByteReader(strings.NewReader("new"))}); err != nil {
		t.Fatal(err)
	}
	if data, err := ws.Files().Read(ctx, "once"); err != nil || string(data) != "new" {
		t.Errorf("the new file is %q, %v", data, err)
	}
}

func TestWriteThatFailsLeavesTheOldFile(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	if _, err := ws.Files().Write(ctx, "f", []byte("old")); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the source broke")
	for name, source := range map[string]io.Reader{
		"reader": onlyReader{io.MultiReader(bytes.NewReader(pattern(1<<20)), iotest.ErrReader(broken))},
		"seeker": struct {
			io.Reader
			io.Seeker
		}{io.MultiReader(bytes.NewReader(pattern(1<<20)), iotest.ErrReader(broken)), strings.NewReader("")},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ws.Files().WriteFrom(ctx, "f", source); err != broken {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(ctx)
		report := OnProgress(func(done, _ int64) {
			if done >= 1<<20 {
				cancel()
			}
		})
		_, err := ws.Files().Write(cancelled, "f", pattern(64<<20), report)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrCancelled) {
			t.Errorf("got %v", err)
		}
	})
	if data, err := ws.Files().Read(ctx, "f"); err != nil || string(data) != "old" {
		t.Errorf("the old file is %q, %v", data, err)
	}
}

func TestCreate(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	w, err := ws.Files().Create(ctx, "made")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for range 1000 {
		if _, err := fmt.Fprintf(w, "%01023d\n", 7); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := ws.Files().Exists(ctx, "made"); err != nil || found {
		t.Errorf("it is seen before its end: %v, %v", found, err)
	}
	if err := w.Close(); err != nil || w.Info().Size() != 1024_000 {
		t.Errorf("%v, %v", w.Info(), err)
	}
	if err := w.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	aborted, err := ws.Files().Create(ctx, "made")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := aborted.Write(pattern(1 << 20)); err != nil {
		t.Fatal(err)
	}
	aborted.Abort()
	if _, err := aborted.Write([]byte("more")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("written after Abort: %v", err)
	}
	refused, err := ws.Files().Create(ctx, "made", CreateOnly())
	if err == nil {
		_, err = io.Copy(refused, onlyReader{io.LimitReader(zeros{}, 1<<30)})
		refused.Abort()
	}
	if !errors.Is(err, ErrFileExists) {
		t.Errorf("got %v", err)
	}
	if info, err := ws.Files().Stat(ctx, "made"); err != nil || info.Size() != 1024_000 {
		t.Errorf("%v, %v", info, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestReadGoesOnAtTheByte(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	data := pattern(24 << 20)
	if _, err := ws.Files().Write(ctx, "f", data); err != nil {
		t.Fatal(err)
	}
	relay := newRelay(t)
	far := relay.through(ws)
	file, err := far.Files().Open(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var got bytes.Buffer
	for i := range 3 {
		if _, err := io.CopyN(&got, file, int64(1+i)<<20+5); err != nil {
			t.Fatal(err)
		}
		relay.cut()
	}
	if _, err := got.ReadFrom(file); err != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}

func TestReadOfAFileThatChanged(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	if _, err := ws.Files().Write(ctx, "f", pattern(24<<20)); err != nil {
		t.Fatal(err)
	}
	relay := newRelay(t)
	file, err := relay.through(ws).Files().Open(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.CopyN(io.Discard, file, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Files().Write(ctx, "f", pattern(23<<20)); err != nil {
		t.Fatal(err)
	}
	relay.cut()
	if _, err := io.Copy(io.Discard, file); !errors.Is(err, ErrContentChanged) {
		t.Errorf("got %v", err)
	}
}

func TestFileIsAReaderLikeAnyOther(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	data := pattern(700 << 10)
	if _, err := ws.Files().Write(ctx, "f", data); err != nil {
		t.Fatal(err)
	}
	file, err := ws.Files().Open(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []struct {
		offset int64
		whence int
		want   int64
	}{{-10, io.SeekEnd, int64(len(data)) - 10}, {3, io.SeekStart, 3}, {100, io.SeekCurrent, 103}, {-50, io.SeekCurrent, 53}} {
		at, err := file.Seek(place.offset, place.whence)
		if err != nil || at != place.want {
			t.Fatalf("seek: %d, %v", at, err)
		}
		var few [8]byte
		if _, err := io.ReadFull(file, few[:]); err != nil || !bytes.Equal(few[:], data[at:at+8]) {
			t.Errorf("at %d: %v, %v", at, few, err)
		}
		if _, err := file.Seek(-8, io.SeekCurrent); err != nil {
			t.Fatal(err)
		}
	}
	if rest, err := io.ReadAll(io.NewSectionReader(file, 1000, 2000)); err != nil || !bytes.Equal(rest, data[1000:3000]) {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if _, err := file.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
}

func TestListGivesPages(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	if _, err := ws.Tools().Call(ctx, "Bash", map[string]any{"command": "mkdir many && cd many && touch $(seq 2500)"}, ToolCall{}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for info, err := range ws.Files().List(ctx, "many") {
		if err != nil {
			t.Fatal(err)
		}
		seen[info.Name()] = true
	}
	if len(seen) != 2500 {
		t.Errorf("%d files", len(seen))
	}
	for info, err := range ws.Files().List(ctx, "many", Glob("7*")) {
		if err != nil || info.Name()[0] != '7' {
			t.Errorf("%v, %v", info, err)
		}
		break
	}
	for _, err := range ws.Files().List(ctx, "none") {
		if !errors.Is(err, ErrFileNotFound) {
			t.Errorf("got %v", err)
		}
	}
}

package workspaced

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

func TestFS(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	for _, name := range []string{"a.txt", "d/b.txt", "d/e/c.txt", "empty.txt"} {
		if _, err := ws.Files().Write(ctx, name, []byte(strings.Repeat(name, 20))); err != nil {
			t.Fatal(err)
		}
	}
	fsys := ws.FS(ctx)
	if err := fstest.TestFS(fsys, "a.txt", "d/b.txt", "d/e/c.txt", "empty.txt"); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadFile(fsys, "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if found, err := fs.Glob(fsys, "*/*.txt"); err != nil || fmt.Sprint(found) != "[d/b.txt]" {
		t.Errorf("%v, %v", found, err)
	}
}

func TestFSIsServedOverHTTP(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	data := pattern(1 << 20)
	if _, err := ws.Files().Write(ctx, "d/data.bin", data); err != nil {
		t.Fatal(err)
	}
	handler := http.FileServerFS(ws.FS(ctx))
	get := func(path, part string) *httptest.ResponseRecorder {
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		if part != "" {
			request.Header.Set("Range", part)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder
	}
	if got := get("/d/data.bin", ""); got.Code != http.StatusOK || !bytes.Equal(got.Body.Bytes(), data) {
		t.Errorf("%d, %d bytes", got.Code, got.Body.Len())
	}
	if got := get("/d/data.bin", "bytes=1000-1999"); got.Code != http.StatusPartialContent || !bytes.Equal(got.Body.Bytes(), data[1000:2000]) {
		t.Errorf("%d, %d bytes", got.Code, got.Body.Len())
	}
	if got := get("/d/", ""); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "data.bin") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := get("/none", ""); got.Code != http.StatusNotFound {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

func TestReadAtIsForAnyNumberOfGoroutines(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	data := pattern(1 << 20)
	if _, err := ws.Files().Write(ctx, "f", data); err != nil {
		t.Fatal(err)
	}
	file, err := ws.Files().Open(ctx, "f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			part := make([]byte, 1000)
			n, err := file.ReadAt(part, int64(i)*100_000)
			if err != nil || !bytes.Equal(part[:n], data[i*100_000:i*100_000+1000]) {
				t.Errorf("%d: %d bytes, %v", i, n, err)
			}
		})
	}
	rest, err := file.rest()
	running.Wait()
	if err != nil || !bytes.Equal(rest, data) {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
}

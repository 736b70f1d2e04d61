package workspaced

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func localFile(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestTreesGoBothWays(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	there, back := t.TempDir(), filepath.Join(t.TempDir(), "back")
	localFile(t, filepath.Join(there, "a.txt"), "a", 0o640)
	localFile(t, filepath.Join(there, "d/e/run.sh"), "#!/bin/sh\n", 0o755)
	localFile(t, filepath.Join(there, "d/big"), strings.Repeat("0123456789", 100_000), 0o600)
	if err := os.Symlink("a.txt", filepath.Join(there, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(there, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	if info, err := ws.Files().Upload(ctx, there, "deep/tree"); err != nil || !info.IsDir() || info.Path != "deep/tree" {
		t.Fatalf("%v, %v", info, err)
	}
	if link, err := ws.Files().Stat(ctx, "deep/tree/link", NoFollow()); err != nil || !link.Mode().IsRegular() || link.Mode() != 0o640 {
		t.Errorf("%v, %v", link, err)
	}
	if _, err := ws.Run(ctx, Shell("cd deep/tree && ln -s d/big inside && ln -s /etc outside && mkfifo pipe")); err != nil {
		t.Fatal(err)
	}
	if info, err := ws.Files().Download(ctx, "deep/tree", back); err != nil || !info.IsDir() {
		t.Fatalf("%v, %v", info, err)
	}
	for path, mode := range map[string]fs.FileMode{
		"a.txt": 0o640, "d/e/run.sh": 0o755, "d/big": 0o600, "link": 0o640, "empty": fs.ModeDir | 0o700,
		"inside": fs.ModeSymlink | 0o777, "outside": fs.ModeSymlink | 0o777,
	} {
		info, err := os.Lstat(filepath.Join(back, path))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(back, "inside")); err != nil || len(content) != 1_000_000 {
		t.Errorf("%d bytes, %v", len(content), err)
	}
	if entries, err := os.ReadDir(back); err != nil || len(entries) != 6 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestDownloadWritesNothingOutside(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	local, outside := t.TempDir(), t.TempDir()
	if _, err := ws.Files().Write(ctx, "tree/sub/file", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(local, "sub")); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Files().Download(ctx, "tree", local); err == nil {
		t.Error("it went through the link")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestUploadOfWhatIsThere(t *testing.T) {
	ws := newWorkspace(t)
	ctx := testContext(t)
	local := t.TempDir()
	if _, err := ws.Files().Upload(ctx, filepath.Join(local, "none"), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.Symlink(".", filepath.Join(local, "loop")); err != nil {
		t.Fatal(err)
	}
	var failed *fs.PathError
	if _, err := ws.Files().Upload(ctx, local, "x"); !errors.As(err, &failed) || filepath.Base(failed.Path) != "loop" {
		t.Errorf("got %v", err)
	}
	if found, err := ws.Files().Exists(ctx, "x"); err != nil || found {
		t.Errorf("%v, %v", found, err)
	}
	localFile(t, filepath.Join(local, "f"), "content", 0o600)
	var reported int64
	info, err := ws.Files().Upload(ctx, filepath.Join(local, "f"), "f", Mode(0o755), OnProgress(func(done, total int64) {
		reported = done + total
	}))
	if err != nil || info.Mode() != 0o755 || reported != 14 {
		t.Errorf("%v, %v, %d", info, err, reported)
	}
	if info, err := ws.Files().Download(ctx, "f", filepath.Join(local, "g")); err != nil || info.Size() != 7 {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := ws.Files().Download(ctx, "none", filepath.Join(local, "h")); !errors.Is(err, ErrFileNotFound) {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(local); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestWatch(t *testing.T) {
	ws := newWorkspace(t)
	relay := newRelay(t)
	far := relay.through(ws)
	ctx := testContext(t)
	if _, err := ws.Files().Mkdir(ctx, "d"); err != nil {
		t.Fatal(err)
	}
	ready := 0
	for change, err := range far.Files().Watch(ctx, "d", Recursive()) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case change.Kind == WatchReady && ready == 0:
			ready++
			relay.cut()
		case change.Kind == WatchReady:
			ready++
			if _, err := ws.Files().Write(ctx, "d/f", []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if change.Path == "d/f" {
			break
		}
	}
	if ready != 2 {
		t.Errorf("ready %d times", ready)
	}
	for _, err := range far.Files().Watch(ctx, "none") {
		if !errors.Is(err, ErrFileNotFound) {
			t.Errorf("got %v", err)
		}
	}
}

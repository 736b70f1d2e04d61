package workspaced

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
)

// FS is the workspace's directory as a file system that can be read: an [fs.ReadDirFS], [fs.ReadFileFS], [fs.StatFS]
// and [fs.ReadLinkFS]. Its files are an [io.Seeker] and an [io.ReaderAt] too, so [net/http.FileServerFS] serves it.
//
// ctx bounds every call that is made through it and through its files. Errors are of type [*fs.PathError], behind
// which the error of the call is.
func (w *Workspace) FS(ctx context.Context) fs.FS {
	return &fileSystem{ctx: ctx, files: w.Files()}
}

type fileSystem struct {
	ctx   context.Context
	files *Files
}

var (
	_ fs.ReadDirFS  = (*fileSystem)(nil)
	_ fs.ReadFileFS = (*fileSystem)(nil)
	_ fs.StatFS     = (*fileSystem)(nil)
	_ fs.ReadLinkFS = (*fileSystem)(nil)
)

func (s *fileSystem) Open(name string) (fs.File, error) {
	info, err := s.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &directory{system: s, name: name, info: info}, nil
	}
	return &fsFile{File: s.files.handle(s.ctx, name, info), name: name}, nil
}

func (s *fileSystem) Stat(name string) (fs.FileInfo, error) {
	info, err := s.stat("stat", name)
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (s *fileSystem) Lstat(name string) (fs.FileInfo, error) {
	info, err := s.stat("lstat", name, NoFollow())
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (s *fileSystem) ReadLink(name string) (string, error) {
	info, err := s.stat("readlink", name, NoFollow())
	if err != nil {
		return "", err
	}
	if info.Type() != fs.ModeSymlink {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return info.LinkTarget, nil
}

func (s *fileSystem) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	data, err := s.files.Read(s.ctx, name)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return data, nil
}

func (s *fileSystem) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	entries := []fs.DirEntry{}
	for info, err := range s.files.List(s.ctx, name) {
		if err != nil {
			return entries, &fs.PathError{Op: "readdir", Path: name, Err: err}
		}
		entries = append(entries, info)
	}
	return entries, nil
}

// stat asks for a file by its name in the file system, which is the last part of the path that it is told by: what a
// link leads to goes by the link's name.
func (s *fileSystem) stat(op, name string, options ...StatOption) (*FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	info, err := s.files.Stat(s.ctx, name, options...)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	info.Path = path.Clean(name)
	return info, nil
}

// fsFile is a [File] whose errors name its path, as those of a file system do.
type fsFile struct {
	*File
	name string
}

func (f *fsFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	return n, f.wrap("read", err)
}

func (f *fsFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	return n, f.wrap("read", err)
}

func (f *fsFile) wrap(op string, err error) error {
	var already *fs.PathError
	if err == nil || err == io.EOF || errors.As(err, &already) {
		return err
	}
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// directory is an open directory. It is listed when the first entries are asked for.
type directory struct {
	system *fileSystem
	name   string
	info   *FileInfo
	listed bool
	rest   []fs.DirEntry
	closed bool
}

func (d *directory) Stat() (fs.FileInfo, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "stat", Path: d.name, Err: fs.ErrClosed}
	}
	return d.info, nil
}

func (d *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errors.New("is a directory")}
}

func (d *directory) Close() error {
	if d.closed {
		return &fs.PathError{Op: "close", Path: d.name, Err: fs.ErrClosed}
	}
	d.closed = true
	return nil
}

func (d *directory) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	if !d.listed {
		entries, err := d.system.ReadDir(d.name)
		if err != nil {
			return nil, err
		}
		d.rest, d.listed = entries, true
	}
	if n <= 0 {
		all := d.rest
		d.rest = nil
		return all, nil
	}
	if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	part := d.rest[:n:n]
	d.rest = d.rest[n:]
	return part, nil
}

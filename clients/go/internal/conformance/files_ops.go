package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"

	"github.com/workspaced/workspaced/clients/go"
)

func init() {
	register(map[string]operation{
		"file_write": fileWrite,
		"file_read":  fileRead,
		"stat":       stat,
		"exists":     exists,
		"list_files": listFiles,
		"remove":     remove,
		"move":       move,
		"copy":       copyFile,
		"mkdir":      mkdir,
		"upload":     upload,
		"download":   download,
	})
}

// bytes is the DATA of an argument.
func (a args) bytes(name string) []byte {
	all, err := io.ReadAll(a.data(name))
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return all
}

// fileOf is FILE.
func fileOf(info *workspaced.FileInfo, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return object{
		"path": info.Path, "type": info.Kind, "size": info.Size(), "mode": unixMode(info.Mode()),
		"sha256": info.SHA256, "link_target": info.LinkTarget,
	}, nil
}

var specialBits = map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000}

func unixMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for special, bit := range specialBits {
		if mode&special != 0 {
			bits |= bit
		}
	}
	return bits
}

func (a args) mode() fs.FileMode {
	bits := uint32(a.integer("mode", 0))
	mode := fs.FileMode(bits) & fs.ModePerm
	for special, bit := range specialBits {
		if bits&bit != 0 {
			mode |= special
		}
	}
	return mode
}

// given appends an option when an argument is there.
func given[T any](options []T, there bool, option func() T) []T {
	if there {
		return append(options, option())
	}
	return options
}

func (a args) writeOptions() []workspaced.WriteOption {
	type option = workspaced.WriteOption
	var options []option
	options = given(options, a.has("if_match"), func() option { return workspaced.IfMatch(a.str("if_match", "")) })
	options = given(options, a.flag("create_only"), workspaced.CreateOnly)
	options = given(options, a.has("mode"), func() option { return workspaced.Mode(a.mode()) })
	options = given(options, a.has("parents") && !a.flag("parents"), workspaced.NoParents)
	options = given(options, a.has("hash") && !a.flag("hash"), workspaced.NoHash)
	return given(options, a.has("sha256"), func() option { return workspaced.ContentSHA256(a.str("sha256", "")) })
}

func fileWrite(ctx context.Context, s *session, a args) (any, error) {
	files, path := s.workspace(a).Files(), a.str("path", "")
	if !a.flag("as_stream") && !a.has("fail_after") {
		return fileOf(files.Write(ctx, path, a.bytes("data"), a.writeOptions()...))
	}
	source := a.data("data")
	if a.has("fail_after") {
		source = &failing{source: source, left: a.integer("fail_after", 0)}
	}
	return fileOf(files.WriteFrom(ctx, path, once{source}, a.writeOptions()...))
}

// once hides that a reader could be read again.
type once struct{ io.Reader }

// failing fails after some bytes, and at the end of its source.
type failing struct {
	source io.Reader
	left   int
}

func (f *failing) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, errSourceFailed
	}
	n, err := f.source.Read(p[:min(len(p), f.left)])
	f.left -= n
	if err == io.EOF {
		err = errSourceFailed
	}
	return n, err
}

func (a args) readOptions() []workspaced.ReadOption {
	type option = workspaced.ReadOption
	var options []option
	options = given(options, a.has("offset"), func() option { return workspaced.Offset(int64(a.integer("offset", 0))) })
	return given(options, a.has("limit"), func() option { return workspaced.Limit(int64(a.integer("limit", 0))) })
}

func fileRead(ctx context.Context, s *session, a args) (any, error) {
	file, err := s.workspace(a).Files().Open(ctx, a.str("path", ""), a.readOptions()...)
	if err != nil {
		return nil, err
	}
	read := newSink()
	if _, err := file.WriteTo(read); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return read.result(), file.Close()
}

func stat(ctx context.Context, s *session, a args) (any, error) {
	var options []workspaced.StatOption
	options = given(options, a.has("follow") && !a.flag("follow"), workspaced.NoFollow)
	options = given(options, a.flag("sha256"), workspaced.WithSHA256)
	return fileOf(s.workspace(a).Files().Stat(ctx, a.str("path", ""), options...))
}

func exists(ctx context.Context, s *session, a args) (any, error) {
	found, err := s.workspace(a).Files().Exists(ctx, a.str("path", ""))
	return object{"exists": found}, err
}

func listFiles(ctx context.Context, s *session, a args) (any, error) {
	type option = workspaced.ListOption
	var options []option
	options = given(options, a.flag("recursive"), func() option { return workspaced.Recursive() })
	options = given(options, a.has("glob"), func() option { return workspaced.Glob(a.str("glob", "")) })
	options = given(options, a.has("max_depth"), func() option { return workspaced.MaxDepth(a.integer("max_depth", 0)) })
	paths, types := []string{}, map[string]workspaced.FileKind{}
	for info, err := range s.workspace(a).Files().List(ctx, a.str("path", ""), options...) {
		if err != nil {
			return nil, err
		}
		paths = append(paths, info.Path)
		types[info.Path] = info.Kind
	}
	slices.Sort(paths)
	return object{"paths": paths, "types": types}, nil
}

func remove(ctx context.Context, s *session, a args) (any, error) {
	type option = workspaced.RemoveOption
	var options []option
	options = given(options, a.flag("recursive"), func() option { return workspaced.Recursive() })
	options = given(options, a.flag("allow_missing"), func() option { return workspaced.AllowMissing() })
	options = given(options, a.has("if_match"), func() option { return workspaced.IfMatch(a.str("if_match", "")) })
	removed, err := s.workspace(a).Files().Remove(ctx, a.str("path", ""), options...)
	return object{"removed": removed}, err
}

func move(ctx context.Context, s *session, a args) (any, error) {
	type option = workspaced.MoveOption
	options := given(nil, a.flag("overwrite"), func() option { return workspaced.Overwrite() })
	return fileOf(s.workspace(a).Files().Move(ctx, a.str("path", ""), a.str("to", ""), options...))
}

func copyFile(ctx context.Context, s *session, a args) (any, error) {
	type option = workspaced.CopyOption
	options := given(nil, a.flag("overwrite"), func() option { return workspaced.Overwrite() })
	options = given(options, a.flag("recursive"), func() option { return workspaced.Recursive() })
	return fileOf(s.workspace(a).Files().Copy(ctx, a.str("path", ""), a.str("to", ""), options...))
}

func mkdir(ctx context.Context, s *session, a args) (any, error) {
	type option = workspaced.MkdirOption
	options := given(nil, a.flag("parents"), workspaced.Parents)
	options = given(options, a.flag("exist_ok"), workspaced.ExistOK)
	options = given(options, a.has("mode"), func() option { return workspaced.Mode(a.mode()) })
	return fileOf(s.workspace(a).Files().Mkdir(ctx, a.str("path", ""), options...))
}

func upload(ctx context.Context, s *session, a args) (any, error) {
	return fileOf(s.workspace(a).Files().Upload(ctx, a.str("local", ""), a.str("path", ""), a.writeOptions()...))
}

func download(ctx context.Context, s *session, a args) (any, error) {
	return fileOf(s.workspace(a).Files().Download(ctx, a.str("path", ""), a.str("local", "")))
}

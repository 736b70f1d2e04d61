package workspaced

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Upload copies a local file or directory to a path of the workspace, with its permission bits unless [Mode] is given, and returns
// what it has become. It goes on over broken connections. Each file is replaced at once; a directory that fails or is cancelled
// half-way leaves those that were done.
//
// Of a directory, links to files are uploaded as what they lead to. A link to a directory, and anything else that is no file, fails
// before anything is sent. Errors of the local side are of type [*fs.PathError].
func (f *Files) Upload(ctx context.Context, local, remote string, options ...WriteOption) (*FileInfo, error) {
	info, err := os.Stat(local)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return f.uploadFile(ctx, local, remote, info, options)
	}
	var names []string
	err = filepath.WalkDir(local, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			names = append(names, name)
			return err
		}
		info, err := os.Stat(name)
		if err == nil && !info.Mode().IsRegular() {
			err = &fs.PathError{Op: "upload", Path: name, Err: fmt.Errorf("%s is no file", info.Mode().Type())}
		}
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	var root *FileInfo
	for i, name := range names {
		relative, err := filepath.Rel(local, name)
		if err != nil {
			return nil, err
		}
		made, err := f.uploadEntry(ctx, name, path.Join(remote, filepath.ToSlash(relative)), options)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			root = made
		}
	}
	return root, nil
}

func (f *Files) uploadEntry(ctx context.Context, local, remote string, options []WriteOption) (*FileInfo, error) {
	info, err := os.Stat(local)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		// What is to be filled its owner must be able to write.
		return f.Mkdir(ctx, remote, ExistOK(), Parents(), Mode(info.Mode()|0o700))
	}
	return f.uploadFile(ctx, local, remote, info, options)
}

func (f *Files) uploadFile(
	ctx context.Context, local, remote string, info fs.FileInfo, options []WriteOption,
) (*FileInfo, error) {
	file, err := os.Open(local)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return f.WriteFrom(ctx, remote, file, append([]WriteOption{Mode(info.Mode())}, options...)...)
}

// Download copies a file or directory of the workspace to a local path, and returns what it was. It goes on over broken
// connections, and fails with [ErrContentChanged] when a file changed meanwhile. Each file is replaced at once when all is there; a
// directory that fails or is cancelled half-way leaves those that were done.
//
// Of a directory, links are made as links, and nothing is written outside of it, whatever links it holds; pipes, sockets and devices
// are left out.
func (f *Files) Download(ctx context.Context, remote, local string, options ...DownloadOption) (*FileInfo, error) {
	var asked fileDownload
	for _, option := range options {
		option.applyDownload(&asked)
	}
	info, err := f.Stat(ctx, remote)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		root, err := os.OpenRoot(filepath.Dir(local))
		if err != nil {
			return nil, err
		}
		defer root.Close()
		return f.downloadFile(ctx, root, remote, filepath.Base(local), asked)
	}
	if err := os.MkdirAll(local, 0o777); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(local)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return info, f.downloadTree(ctx, root, info, asked)
}

func (f *Files) downloadTree(ctx context.Context, root *os.Root, tree *FileInfo, asked fileDownload) error {
	// A directory that its owner may not write gets its mode when it is full.
	var directories []*FileInfo
	for entry, err := range f.List(ctx, tree.Path, Recursive()) {
		if err != nil {
			return err
		}
		name := below(tree.Path, entry.Path)
		if len(entry.RawPath) > 0 {
			return &fs.PathError{Op: "download", Path: entry.Path, Err: errors.New("the name is not UTF-8")}
		}
		switch entry.Type() {
		case fs.ModeDir:
			directories = append(directories, entry)
			err = root.MkdirAll(name, 0o777)
		case fs.ModeSymlink:
			if err = root.Remove(name); err == nil || errors.Is(err, fs.ErrNotExist) {
				err = root.Symlink(entry.LinkTarget, name)
			}
		case 0:
			_, err = f.downloadFile(ctx, root, entry.Path, name, asked)
		}
		if err != nil {
			return err
		}
	}
	for i := len(directories) - 1; i >= 0; i-- {
		if err := root.Chmod(below(tree.Path, directories[i].Path), directories[i].Mode().Perm()); err != nil {
			return err
		}
	}
	return nil
}

// below is the path of an entry relative to the directory that was listed.
func below(directory, entry string) string {
	if directory == "." {
		return filepath.FromSlash(entry)
	}
	return filepath.FromSlash(strings.TrimPrefix(strings.TrimPrefix(entry, directory), "/"))
}

// downloadFile writes beside the file, which is replaced at the end.
func (f *Files) downloadFile(
	ctx context.Context, root *os.Root, remote, name string, asked fileDownload,
) (_ *FileInfo, err error) {
	source, err := f.Open(ctx, remote)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	partial := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+"."+newID())
	target, err := root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(partial)
		}
	}()
	if _, err = source.WriteTo(&counted{Writer: target, total: source.stated.Size(), report: asked.progress}); err != nil {
		_ = target.Close()
		return nil, err
	}
	if err = target.Chmod(source.stated.Mode().Perm()); err != nil {
		_ = target.Close()
		return nil, err
	}
	if err = target.Close(); err != nil {
		return nil, err
	}
	return source.stated, root.Rename(partial, name)
}

// counted reports what is written.
type counted struct {
	io.Writer
	done, total int64
	report      func(done, total int64)
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.done += int64(n)
	if c.report != nil && err == nil {
		c.report(c.done, max(c.done, c.total))
	}
	return n, err
}

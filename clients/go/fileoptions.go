package workspaced

import (
	"io/fs"

	"google.golang.org/protobuf/proto"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

type (
	// ReadOption is an option of [Files.Read] and [Files.Open].
	ReadOption interface{ applyRead(*fileRange) }
	// WriteOption is an option of [Files.Write], [Files.WriteFrom], [Files.Create] and [Files.Upload].
	WriteOption interface{ applyWrite(*fileWrite) }
	// DownloadOption is an option of [Files.Download].
	DownloadOption interface{ applyDownload(*fileDownload) }
	// StatOption is an option of [Files.Stat].
	StatOption interface{ applyStat(*pb.StatFileRequest) }
	// ListOption is an option of [Files.List].
	ListOption interface{ applyList(*pb.ListFilesRequest) }
	// RemoveOption is an option of [Files.Remove].
	RemoveOption interface{ applyRemove(*pb.RemoveFileRequest) }
	// MoveOption is an option of [Files.Move].
	MoveOption interface{ applyMove(*pb.MoveFileRequest) }
	// CopyOption is an option of [Files.Copy].
	CopyOption interface{ applyCopy(*pb.CopyFileRequest) }
	// MkdirOption is an option of [Files.Mkdir].
	MkdirOption interface {
		applyMkdir(*pb.MakeDirectoryRequest)
	}
	// WatchOption is an option of [Files.Watch].
	WatchOption interface{ applyWatch(*pb.WatchFilesRequest) }
)

// fileRange is what is read of a file.
type fileRange struct {
	offset int64
	limit  int64 // negative: to the end
}

// fileWrite is what a write was asked for.
type fileWrite struct {
	header   *pb.WriteFileHeader
	progress func(done, total int64)
}

// fileDownload is what a download was asked for.
type fileDownload struct {
	progress func(done, total int64)
}

type readOption func(*fileRange)

func (o readOption) applyRead(r *fileRange) { o(r) }

// Offset begins with the byte at n. Beyond the end there is nothing to read.
func Offset(n int64) ReadOption { return readOption(func(r *fileRange) { r.offset = n }) }

// Limit reads at most n bytes.
func Limit(n int64) ReadOption { return readOption(func(r *fileRange) { r.limit = n }) }

type writeOption func(*fileWrite)

func (o writeOption) applyWrite(w *fileWrite) { o(w) }

// CreateOnly refuses a path that exists, with [ErrFileExists].
func CreateOnly() WriteOption {
	return writeOption(func(w *fileWrite) { w.header.CreateOnly = true })
}

// ContentSHA256 is the hash, in hexadecimal, that the new content must have; [ErrHashMismatch] when it has another.
func ContentSHA256(sum string) WriteOption {
	return writeOption(func(w *fileWrite) { w.header.Sha256 = sum })
}

// NoParents does not make missing directories on the way to a file that is written.
func NoParents() WriteOption {
	return writeOption(func(w *fileWrite) { w.header.Parents = false })
}

// NoSync does not wait until the content is on the workspace's disk.
func NoSync() WriteOption {
	return writeOption(func(w *fileWrite) { w.header.NoSync = true })
}

// NoHash does not compute the SHA-256 of what is written: a fifth less work for a large file. Not with [ContentSHA256].
func NoHash() WriteOption {
	return writeOption(func(w *fileWrite) { w.header.NoHash = true })
}

type progressOption func(done, total int64)

func (o progressOption) applyWrite(w *fileWrite)       { w.progress = o }
func (o progressOption) applyDownload(d *fileDownload) { d.progress = o }

// OnProgress is called with the bytes of a file that were moved, and those that there are (-1: unknown), by the
// goroutine that moves them.
func OnProgress(report func(done, total int64)) interface {
	WriteOption
	DownloadOption
} {
	return progressOption(report)
}

type ifMatchOption string

func (o ifMatchOption) applyWrite(w *fileWrite)             { w.header.IfMatch = string(o) }
func (o ifMatchOption) applyRemove(r *pb.RemoveFileRequest) { r.IfMatch = string(o) }

// IfMatch is the SHA-256, in hexadecimal, that the present content must have; [ErrContentChanged] when it has another.
func IfMatch(sum string) interface {
	WriteOption
	RemoveOption
} {
	return ifMatchOption(sum)
}

type modeOption fs.FileMode

func (o modeOption) applyWrite(w *fileWrite)               { w.header.Mode = unixMode(fs.FileMode(o)) }
func (o modeOption) applyMkdir(r *pb.MakeDirectoryRequest) { r.Mode = unixMode(fs.FileMode(o)) }

// Mode is the permission bits. Without it a file keeps those that it has; a new one gets 0644, a directory 0755, less
// the workspace's umask.
func Mode(mode fs.FileMode) interface {
	WriteOption
	MkdirOption
} {
	return modeOption(mode)
}

type statOption func(*pb.StatFileRequest)

func (o statOption) applyStat(r *pb.StatFileRequest) { o(r) }

// NoFollow tells of a symbolic link itself, not of what it leads to.
func NoFollow() StatOption { return statOption(func(r *pb.StatFileRequest) { r.NoFollow = true }) }

// WithSHA256 also hashes the content.
func WithSHA256() StatOption { return statOption(func(r *pb.StatFileRequest) { r.Hash = true }) }

type listOption func(*pb.ListFilesRequest)

func (o listOption) applyList(r *pb.ListFilesRequest) { o(r) }

// Glob lists only paths that match, relative to the listed directory; ** crosses directories.
func Glob(pattern string) ListOption {
	return listOption(func(r *pb.ListFilesRequest) { r.Glob = pattern })
}

// MaxDepth bounds a recursive listing: 1 is the directory's own entries.
func MaxDepth(n int) ListOption {
	return listOption(func(r *pb.ListFilesRequest) { r.MaxDepth = uint32(max(n, 0)) })
}

type recursiveOption struct{}

func (recursiveOption) applyList(r *pb.ListFilesRequest)    { r.Recursive = true }
func (recursiveOption) applyRemove(r *pb.RemoveFileRequest) { r.Recursive = true }
func (recursiveOption) applyCopy(r *pb.CopyFileRequest)     { r.Recursive = true }
func (recursiveOption) applyWatch(r *pb.WatchFilesRequest)  { r.Recursive = true }

// Recursive includes what is below a directory. Symbolic links are not followed.
func Recursive() interface {
	ListOption
	RemoveOption
	CopyOption
	WatchOption
} {
	return recursiveOption{}
}

type overwriteOption struct{}

func (overwriteOption) applyMove(r *pb.MoveFileRequest) { r.Overwrite = true }
func (overwriteOption) applyCopy(r *pb.CopyFileRequest) { r.Overwrite = true }

// Overwrite replaces a file at the destination.
func Overwrite() interface {
	MoveOption
	CopyOption
} {
	return overwriteOption{}
}

type mkdirOption func(*pb.MakeDirectoryRequest)

func (o mkdirOption) applyMkdir(r *pb.MakeDirectoryRequest) { o(r) }

// Parents makes missing directories on the way.
func Parents() MkdirOption {
	return mkdirOption(func(r *pb.MakeDirectoryRequest) { r.Parents = true })
}

// ExistOK accepts a directory that exists, which makes the call one that can be repeated.
func ExistOK() MkdirOption {
	return mkdirOption(func(r *pb.MakeDirectoryRequest) { r.ExistOk = true })
}

func (r fileRange) request(workspaceID, path string) *pb.ReadFileRequest {
	request := &pb.ReadFileRequest{WorkspaceId: workspaceID, Path: path, Offset: uint64(r.offset)}
	if r.limit >= 0 {
		request.Limit = proto.Uint64(uint64(r.limit))
	}
	return request
}

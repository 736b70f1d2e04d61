package workspaced

import (
	"io/fs"
	"path"
	"time"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// FileKind is what a file is.
type FileKind string

// The kinds of files. KindUnspecified is one that this version does not know.
const (
	KindUnspecified FileKind = "UNSPECIFIED"
	KindFile        FileKind = "FILE"
	KindDirectory   FileKind = "DIRECTORY"
	KindSymlink     FileKind = "SYMLINK"
	// KindOther is a pipe, socket or device.
	KindOther FileKind = "OTHER"
)

// FileInfo is what is known of a file, directory or link of a workspace. It is an [fs.FileInfo] and an [fs.DirEntry].
type FileInfo struct {
	// Path is relative to the workspace's directory when it is inside, else absolute.
	Path string
	// Kind is what it is; Mode tells the same, as far as [fs.FileMode] can.
	Kind FileKind
	// User and Group are names, or numbers when the workspace has no names for them.
	User, Group string
	// LinkTarget is where a symbolic link leads.
	LinkTarget string
	// SHA256 of the content in hexadecimal, when it was asked for.
	SHA256 string
	// RawPath holds the bytes of a path that is not UTF-8, else nothing.
	RawPath []byte

	size    int64
	mode    fs.FileMode
	modTime time.Time
}

var (
	_ fs.FileInfo = (*FileInfo)(nil)
	_ fs.DirEntry = (*FileInfo)(nil)
)

// Name is the last element of the path.
func (i *FileInfo) Name() string { return path.Base(i.Path) }

// Size is in bytes.
func (i *FileInfo) Size() int64 { return i.size }

// Mode has the type and the permission bits.
func (i *FileInfo) Mode() fs.FileMode { return i.mode }

// ModTime is when the content changed last.
func (i *FileInfo) ModTime() time.Time { return i.modTime }

// IsDir says whether it is a directory.
func (i *FileInfo) IsDir() bool { return i.mode.IsDir() }

// Sys returns nil.
func (i *FileInfo) Sys() any { return nil }

// Type returns the type bits of the mode.
func (i *FileInfo) Type() fs.FileMode { return i.mode.Type() }

// Info returns the receiver.
func (i *FileInfo) Info() (fs.FileInfo, error) { return i, nil }

// String describes the entry in one line.
func (i *FileInfo) String() string { return fs.FormatDirEntry(i) }

func fileInfoOf(info *pb.FileInfo) *FileInfo {
	return &FileInfo{
		Path:       info.GetPath(),
		Kind:       FileKind(enumName(info.GetType(), "FILE_TYPE_")),
		User:       info.GetUser(),
		Group:      info.GetGroup(),
		LinkTarget: info.GetLinkTarget(),
		SHA256:     info.GetSha256(),
		RawPath:    info.GetRawPath(),
		size:       int64(info.GetSize()),
		mode:       fileTypeOf(info.GetType()) | fileModeOf(info.GetMode()),
		modTime:    when(info.GetModifyTime()),
	}
}

func fileTypeOf(kind pb.FileType) fs.FileMode {
	switch kind {
	case pb.FileType_FILE_TYPE_FILE:
		return 0
	case pb.FileType_FILE_TYPE_DIRECTORY:
		return fs.ModeDir
	case pb.FileType_FILE_TYPE_SYMLINK:
		return fs.ModeSymlink
	default:
		return fs.ModeIrregular
	}
}

const (
	setuidBit = 0o4000
	setgidBit = 0o2000
	stickyBit = 0o1000
)

// fileModeOf translates permission bits as Unix has them.
func fileModeOf(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits) & fs.ModePerm
	if bits&setuidBit != 0 {
		mode |= fs.ModeSetuid
	}
	if bits&setgidBit != 0 {
		mode |= fs.ModeSetgid
	}
	if bits&stickyBit != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// unixMode translates the other way.
func unixMode(mode fs.FileMode) *uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= setuidBit
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= setgidBit
	}
	if mode&fs.ModeSticky != 0 {
		bits |= stickyBit
	}
	return &bits
}

// ChangeKind says what happened to a file.
type ChangeKind string

// The kinds of events of a watch.
const (
	// FileCreated: it is new.
	FileCreated ChangeKind = "CREATED"
	// FileModified: its content or mode changed.
	FileModified ChangeKind = "MODIFIED"
	// FileChanged: something that this version has no name for.
	FileChanged ChangeKind = "UNSPECIFIED"
	// FileDeleted: it is gone.
	FileDeleted ChangeKind = "DELETED"
	// FileMoved: it was renamed to To.
	FileMoved ChangeKind = "MOVED"
	// WatchReady: the watch stands, every later change is reported. It comes again after a broken connection, when
	// changes may have been missed: list again then.
	WatchReady ChangeKind = "READY"
	// WatchOverflow: changes came faster than they could be reported: list again.
	WatchOverflow ChangeKind = "OVERFLOW"
)

// FileChange is an event of a watch.
type FileChange struct {
	Kind ChangeKind
	// Path is what changed, relative to the workspace's directory when it is inside.
	Path string
	// To is the new path, with FileMoved.
	To string
	// Type is what changed, as far as known.
	Type FileKind
	// Polling, with WatchReady: changes are found by polling every second, since the sandbox has no inotify.
	Polling bool
}

// fileChangeOf is the event for a message, if it is one.
func fileChangeOf(response *pb.WatchFilesResponse) (FileChange, bool) {
	switch event := response.GetEvent().(type) {
	case *pb.WatchFilesResponse_Ready:
		return FileChange{Kind: WatchReady, Polling: event.Ready.GetPolling()}, true
	case *pb.WatchFilesResponse_Overflow:
		return FileChange{Kind: WatchOverflow}, true
	case *pb.WatchFilesResponse_Change:
		change := event.Change
		return FileChange{
			Kind: ChangeKind(enumName(change.GetKind(), "KIND_")),
			Path: change.GetPath(),
			To:   change.GetTo(),
			Type: FileKind(enumName(change.GetType(), "FILE_TYPE_")),
		}, true
	default:
		return FileChange{}, false
	}
}

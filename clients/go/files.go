package workspaced

import (
	"context"
	"errors"
	"iter"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Files moves and lists the files of a workspace. Paths are absolute, or relative to the workspace's directory.
//
// Every method fails with [ErrFileNotFound], which is an [io/fs.ErrNotExist] too, only when the sandbox said so: one that
// cannot be asked is [ErrUnreachable]. Methods that only read are repeated when a connection breaks.
type Files struct {
	client      *Client
	workspaceID string
}

// Files is the workspace's files.
func (w *Workspace) Files() *Files { return &Files{client: w.client, workspaceID: w.ID} }

// Read returns the content of a file, or a part of it.
func (f *Files) Read(ctx context.Context, path string, options ...ReadOption) ([]byte, error) {
	file, err := f.Open(ctx, path, options...)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return file.rest()
}

// Stat tells what is known of a file.
func (f *Files) Stat(ctx context.Context, path string, options ...StatOption) (*FileInfo, error) {
	request := &pb.StatFileRequest{WorkspaceId: f.workspaceID, Path: path}
	for _, option := range options {
		option.applyStat(request)
	}
	response, err := unary(ctx, f.client, f.client.files.StatFile, request, f.client.timeout)
	if err != nil {
		return nil, err
	}
	return fileInfoOf(response.GetInfo()), nil
}

// Exists tells whether a path exists. A link counts even when what it leads to does not.
func (f *Files) Exists(ctx context.Context, path string) (bool, error) {
	_, err := f.Stat(ctx, path, NoFollow())
	if errors.Is(err, ErrFileNotFound) {
		return false, nil
	}
	return err == nil, err
}

// List gives the entries of a directory by path, a page at a time; an empty path is the workspace's directory. Symbolic
// links are not followed. An error comes last.
func (f *Files) List(ctx context.Context, path string, options ...ListOption) iter.Seq2[*FileInfo, error] {
	return pages(func(token string) ([]*FileInfo, string, error) {
		request := &pb.ListFilesRequest{WorkspaceId: f.workspaceID, Path: path, PageSize: maxPageSize, PageToken: token}
		for _, option := range options {
			option.applyList(request)
		}
		response, err := unary(ctx, f.client, f.client.files.ListFiles, request, f.client.timeout)
		if err != nil {
			return nil, "", err
		}
		return each(response.GetFiles(), fileInfoOf), response.GetNextPageToken(), nil
	})
}

// Remove removes a file, a link (never its target) or, with [Recursive], a directory, and returns how many went. It is
// repeated when a connection breaks only with [AllowMissing]: else it may have happened, and fails as [ErrUnavailable].
func (f *Files) Remove(ctx context.Context, path string, options ...RemoveOption) (int, error) {
	request := &pb.RemoveFileRequest{WorkspaceId: f.workspaceID, Path: path}
	for _, option := range options {
		option.applyRemove(request)
	}
	response, err := repeatable(ctx, f.client, request.GetAllowMissing(), f.client.files.RemoveFile, request)
	return int(response.GetRemoved()), err
}

// Move moves a file or directory to a new path, not into a directory. Fails with [ErrFileExists] without [Overwrite]. It is
// not repeated when a connection breaks: it may have happened.
func (f *Files) Move(ctx context.Context, source, destination string, options ...MoveOption) (*FileInfo, error) {
	request := &pb.MoveFileRequest{WorkspaceId: f.workspaceID, Source: source, Destination: destination}
	for _, option := range options {
		option.applyMove(request)
	}
	response, err := once(ctx, f.client, f.client.files.MoveFile, request, f.client.timeout)
	if err != nil {
		return nil, err
	}
	return fileInfoOf(response.GetInfo()), nil
}

// Copy copies a file or, with [Recursive], a directory to a new path. A copy that fails or is cancelled leaves nothing. It
// takes as long as the context allows, and is not repeated when a connection breaks.
func (f *Files) Copy(ctx context.Context, source, destination string, options ...CopyOption) (*FileInfo, error) {
	request := &pb.CopyFileRequest{WorkspaceId: f.workspaceID, Source: source, Destination: destination}
	for _, option := range options {
		option.applyCopy(request)
	}
	response, err := once(ctx, f.client, f.client.files.CopyFile, request, 0)
	if err != nil {
		return nil, err
	}
	return fileInfoOf(response.GetInfo()), nil
}

// Mkdir makes a directory. One that exists is [ErrFileExists], or with [ExistOK] what the call returns; only then it is
// repeated when a connection breaks.
func (f *Files) Mkdir(ctx context.Context, path string, options ...MkdirOption) (*FileInfo, error) {
	request := &pb.MakeDirectoryRequest{WorkspaceId: f.workspaceID, Path: path}
	for _, option := range options {
		option.applyMkdir(request)
	}
	response, err := repeatable(ctx, f.client, request.GetExistOk(), f.client.files.MakeDirectory, request)
	if err != nil {
		return nil, err
	}
	return fileInfoOf(response.GetInfo()), nil
}

// Watch gives the changes of a file or directory until the loop is left or the context ends: a [WatchReady] first, and
// again after a broken connection, when changes may have been missed. An error comes last.
func (f *Files) Watch(ctx context.Context, path string, options ...WatchOption) iter.Seq2[FileChange, error] {
	request := &pb.WatchFilesRequest{WorkspaceId: f.workspaceID, Path: path}
	for _, option := range options {
		option.applyWatch(request)
	}
	return func(yield func(FileChange, error) bool) {
		var lost outage
		for {
			left, err := f.watchOnce(ctx, request, &lost, yield)
			if left {
				return
			}
			if err = lost.mend(ctx, f.client, err); err != nil {
				yield(FileChange{}, err)
				return
			}
		}
	}
}

// watchOnce gives the changes of one connection; left says that the loop was left.
func (f *Files) watchOnce(
	ctx context.Context, request *pb.WatchFilesRequest, lost *outage, yield func(FileChange, error) bool,
) (left bool, err error) {
	for response, err := range serverStream(ctx, f.client, f.client.files.WatchFiles, request) {
		if err != nil {
			return false, err
		}
		lost.over()
		if change, ok := fileChangeOf(response); ok && !yield(change, nil) {
			return true, nil
		}
	}
	return false, unavailable("the watch ended")
}

// repeatable makes a call that may be repeated only in one form of it.
func repeatable[Req, Resp any](
	ctx context.Context, c *Client, again bool, call method[Req, Resp], request Req,
) (Resp, error) {
	if again {
		return unary(ctx, c, call, request, c.timeout)
	}
	return once(ctx, c, call, request, c.timeout)
}

// Package workspaced is the client of workspaced: isolated, persistent places with files, tools and running processes for agents.
//
//	client, err := workspaced.Dial("127.0.0.1:7420")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	ws, err := client.Initialize(ctx, workspaced.InitializeOptions{Backend: workspaced.BackendDocker, Image: "python:3.12"})
//	if err != nil {
//		return err
//	}
//	result, err := ws.Run(ctx, workspaced.Shell("python3 --version"))
//
// # Contexts
//
// Every call takes a context first. Cancelling it cancels the call on the server too. A call whose context has no deadline gets
// the client's own ([WithTimeout]). The deadline of a context is never the time limit of a process: that is [Command].Timeout.
//
// # Errors
//
// Calls fail with an [*Error], which has the status code, the stable reason, and when to try again. Ask for a class of errors
// with [errors.Is] and the sentinels of this package:
//
//	if errors.Is(err, workspaced.ErrProcessNotFound) { … }
//	if errors.Is(err, workspaced.ErrNotFound) { … } // any reason with that code, also one that this version does not know
//
// A command that ran and failed is no error of the call: it is a [Result], or an [*ExitError] from [Process.Wait].
//
// # Files
//
// [Workspace.Files] reads and writes files as bytes, as an [io.Reader] and as an [io.Writer]; an open [File] is an [io.ReaderAt] and
// an [io.Seeker] too, and [Workspace.FS] is an [io/fs.FS]. A write replaces the file at once when all of it is there: one that fails
// or is cancelled leaves the old file as it was. Errors of files are [io/fs.ErrNotExist], [io/fs.ErrExist] and
// [io/fs.ErrPermission] where these fit.
//
// # What an agent has
//
// [Workspace.As] is a handle for an agent and a session; its [Tools] can be handed to a model, [MCPs] and [Skills] add to them, and
// [Offload] keeps what does not fit into a context. [Client.Acquire] gives the workspace of a user, an agent or a session, under a
// [Lease] that is renewed while it is in use.
//
// # Broken connections
//
// Attachments to processes resume at the next byte, standard input is sent again from the first byte that was not acknowledged,
// and calls that may be repeated are repeated: see docs/clients.md. Nothing runs twice.
//
// All methods of a [Client] and a [Workspace] may be called by any number of goroutines at once.
package workspaced

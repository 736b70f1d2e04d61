package workspaced

import "context"

// mend waits before a stream is made again where it was. It returns the error, or the end of the context, when it is not to be.
func (o *outage) mend(ctx context.Context, c *Client, err error) error {
	switch {
	case o.pause(ctx, c, err):
		return nil
	case ctx.Err() != nil:
		return interrupted(ctx)
	default:
		return err
	}
}

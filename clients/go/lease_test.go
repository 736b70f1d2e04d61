package workspaced

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestLease(t *testing.T) {
	client := dialTest(t, testServer(t))
	ctx := testContext(t)
	user := "go-" + newID()
	options := AcquireOptions{Policy: PerUser, UserID: user, Backend: BackendLocal, LeaseDuration: 2 * time.Second}
	lease, err := client.Acquire(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	if !lease.Created() || lease.ID() == "" {
		t.Errorf("%+v", lease)
	}
	first := lease.ExpireTime()
	for lease.ExpireTime().Equal(first) {
		if err := ctx.Err(); err != nil {
			t.Fatal("it is not renewed")
		}
		time.Sleep(20 * time.Millisecond)
	}
	again, err := client.Acquire(ctx, options)
	if err != nil || again.Created() || again.Workspace().ID != lease.Workspace().ID {
		t.Errorf("%+v, %v", again, err)
	}
	// A lease that has gone is had anew.
	if err := dialTest(t, testServer(t)).release(ctx, lease.ID()); err != nil {
		t.Fatal(err)
	}
	gone := lease.ID()
	for lease.ID() == gone {
		if err := ctx.Err(); err != nil {
			t.Fatal("it is not acquired again")
		}
		time.Sleep(20 * time.Millisecond)
	}
	select {
	case <-lease.Lost():
		t.Error("it is lost")
	default:
	}
	for _, one := range []*Lease{lease, again, lease} {
		if err := one.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := lease.Workspace().Delete(ctx, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Acquire(ctx, AcquireOptions{Policy: PerSession, UserID: user}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v", err)
	}
	if _, err := client.Acquire(ctx, AcquireOptions{Policy: "per_planet", UserID: user}); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsTheRenewalOfLeases(t *testing.T) {
	client := dialTest(t, testServer(t))
	ctx := testContext(t)
	lease, err := client.Acquire(ctx, AcquireOptions{Policy: PerUser, UserID: "go-" + newID(), Backend: BackendLocal})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Workspace().Delete(ctx, DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := lease.Release(context.Background()); !errors.Is(err, ErrCancelled) {
		t.Errorf("got %v", err)
	}
	if _, err := client.Acquire(ctx, AcquireOptions{Policy: PerUser, UserID: "u"}); !errors.Is(err, ErrCancelled) {
		t.Errorf("got %v", err)
	}
}

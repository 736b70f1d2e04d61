package workspaced

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("WORKSPACED_TEST_SERVER") == "" {
		// An example cannot skip itself, and all of them need a server.
		if err := flag.Set("test.skip", "^Example"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

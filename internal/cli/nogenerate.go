//go:build !docs

package cli

import "github.com/spf13/cobra"

func generators() []*cobra.Command { return nil }

// Command kubectl is Kubernetes' own, of the version that go.mod pins.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // as the original
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }

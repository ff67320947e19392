// SPDX-License-Identifier: Apache-2.0

// One binary that is etcd or kube-apiserver, by the name it is called by or by its first argument:
// what tests need of a Kubernetes, built from its own modules.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	run := map[string]func(){
		"etcd":           func() { etcdmain.Main(os.Args) },
		"kube-apiserver": func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
	}
	name := filepath.Base(os.Args[0])
	if run[name] == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if run[name] == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes {etcd|kube-apiserver} ARGUMENTS")
		os.Exit(2)
	}
	run[name]()
}

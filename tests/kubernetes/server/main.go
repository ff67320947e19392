// SPDX-License-Identifier: Apache-2.0

// One binary that is each part of a Kubernetes of one node, by the name it is called by or by its first
// argument: what tests need of it, built from its own modules.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	run := map[string]func(){
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"kube-apiserver":          func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
		"kube-controller-manager": func() { os.Exit(cli.Run(controllers.NewControllerManagerCommand())) },
		"kube-proxy":              func() { os.Exit(cli.Run(proxy.NewProxyCommand())) },
		"kube-scheduler":          func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
		"kubectl":                 func() { os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand())) },
		"kubelet":                 func() { os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background()))) },
	}
	name := filepath.Base(os.Args[0])
	if run[name] == nil && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if run[name] == nil {
		fmt.Fprintf(os.Stderr, "usage: kubernetes {%s} ARGUMENTS\n",
			strings.Join(slices.Sorted(maps.Keys(run)), "|"))
		os.Exit(2)
	}
	run[name]()
}

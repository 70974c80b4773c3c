// Command pause says that it waits, and waits until it is told to end. It holds
// a pod's namespaces, and is a workload that asks for nothing.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("waiting")
	<-end
}

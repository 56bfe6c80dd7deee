// Scheduling-attempts has kube-scheduler attempt pods of clusters that are described to it, for
// tests. It reads a question as a line of JSON, and writes a line with the answer, until its input
// ends.
//
// The scheduler is that of scheduler.New. Its informers are filled with the objects of the question,
// its API server accepts each request.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scheduling-attempts:", err)
		os.Exit(1)
	}
}

func run(r io.Reader, w io.Writer) error {
	flags := flag.NewFlagSet("", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(io.Discard)
	utilruntime.ErrorHandlers = nil
	// Victims are deleted before PostFilter returns. The nodes of a pod do not follow from those
	// of the pod before.
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.SchedulerAsyncPreemption): false, string(features.OpportunisticBatching): false}); err != nil {
		return err
	}
	in, out := json.NewDecoder(bufio.NewReader(r)), json.NewEncoder(w)
	in.DisallowUnknownFields()
	for {
		var q question
		err := in.Decode(&q)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var a []answer
		if err == nil {
			a, err = q.answers()
		}
		if err == nil {
			err = out.Encode(a)
		}
		if err != nil {
			return err
		}
	}
}

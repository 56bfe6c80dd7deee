package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
)

// scenario is what a picture shows of a scenario; amounts are MiB in the end.
type scenario struct {
	Metadata struct{ Name string }
	Spec     struct {
		Config struct {
			EvictionHard, EvictionSoft, EvictionMinimumReclaim map[string]resource.Quantity
		}
		Pods []struct {
			Metadata struct{ Name string }
			Spec     struct {
				Priority   int
				Containers []struct {
					Resources struct{ Requests map[string]resource.Quantity }
				}
			}
		}
		Steps []struct {
			Signals map[string]resource.Quantity
			Usage   map[string]struct{ Memory resource.Quantity }
		}
	}
}

// pass is what evictd simulate says of one.
type pass struct {
	At            string
	ThresholdsMet []struct{ Kind string }
	Conditions    map[string]bool
	Ranking       []string
	Evictions     []struct{ Pod string }
}

func (p *pass) seconds() float64 {
	at, _ := time.ParseDuration(p.At)
	return at.Seconds()
}

const memory = "memory.available"

func mib(q resource.Quantity) float64 { return float64(q.Value()) / (1 << 20) }

// runScenario runs the scenario of a file.
func runScenario(t *testing.T, file string) (*scenario, []pass) {
	t.Helper()
	text := require.ReadFile(t, file)
	s := new(scenario)
	require.NoError(t, yaml.Unmarshal(text, s))
	out, err := exec.Command(filepath.Join(programs(t), "evictd"), "simulate", "-o", "json", file).Output()
	require.NoError(t, err)
	var passes []pass
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p pass
		require.NoError(t, decoder.Decode(&p))
		passes = append(passes, p)
	}
	return s, passes
}

func TestThePicturesShowTheResultsOfTheScenarios(t *testing.T) {
	golden.Each(t, top+"/docs/pictures/*.yaml", func(t *testing.T, file string) {
		s, passes := runScenario(t, file)
		var d drawing
		if len(passes) > 1 {
			d.timeline(s, passes)
		} else {
			d.order(s, passes[0].Ranking)
		}
		golden.Check(t, golden.Beside(file, ".svg"), d.svg(s.Metadata.Name))
	})
}

// drawing is the inside of an SVG.
type drawing struct {
	strings.Builder
	height float64
}

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(x, y float64, class, anchor, format string, args ...any) {
	d.put(`<text x="%.0f" y="%.0f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, fmt.Sprintf(format, args...))
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) {
	d.put(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

func (d *drawing) box(x, y, width, height float64, class string) {
	d.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="%s"/>`, x, y, width, height, class)
}

// width of every picture, and of the labels beside it.
const (
	width = 760.0
	left  = 56.0
	right = 132.0
)

// svg is the picture, light or dark as the reader has it.
func (d *drawing) svg(title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" role="img" aria-label="%s">
<style>
svg { --ink: #1f2328; --faint: #d1d9e0; --is: #0969da; --hard: #cf222e; --soft: #9a6700; --wait: #fff1c2; --free: #dafbe1; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --faint: #3d444d; --is: #58a6ff; --hard: #ff7b72; --soft: #d29922; --wait: #3a2d0a; --free: #12361d; }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.small { font-size: 11px; opacity: .75; }
.hard { fill: var(--hard); stroke: none; } .soft { fill: var(--soft); stroke: none; }
line.hard { stroke: var(--hard); stroke-width: 1.5; } line.soft { stroke: var(--soft); stroke-width: 1.5; }
line.reclaim { stroke: var(--hard); stroke-dasharray: 4 3; } line.axis { stroke: var(--faint); } line.goes { stroke: var(--hard); stroke-dasharray: 2 3; }
polyline { fill: none; stroke: var(--is); stroke-width: 2.2; stroke-linejoin: round; }
.wait { fill: var(--wait); } .condition { fill: var(--soft); opacity: .85; } .within { fill: var(--is); } .above { fill: var(--hard); }
.request { fill: none; stroke: var(--ink); stroke-width: 1.5; }
</style>
%s</svg>
`, width, d.height, width, title, d.String())
}

// timeline draws available memory against the thresholds, what waits for its grace,
// the evicted pods, and how long the condition is true.
func (d *drawing) timeline(s *scenario, passes []pass) {
	const above, tall = 30.0, 180.0
	d.height = above + tall + 74
	most := 0.0
	for _, step := range s.Spec.Steps {
		most = math.Max(most, mib(step.Signals[memory]))
	}
	most = math.Ceil(most/500) * 500
	last := passes[len(passes)-1].seconds()
	x := func(seconds float64) float64 { return left + seconds/last*(width-left-right) }
	y := func(mib float64) float64 { return above + tall*(1-mib/most) }

	soft, hasSoft := s.Spec.Config.EvictionSoft[memory]
	waits := false
	for i, p := range passes[:len(passes)-1] {
		acts := len(p.ThresholdsMet) > 0
		below := hasSoft && mib(s.Spec.Steps[i].Signals[memory]) < mib(soft)
		if below && !acts {
			d.box(x(p.seconds()), above, x(passes[i+1].seconds())-x(p.seconds())+.3, tall, "wait")
			if !waits {
				d.text(x(p.seconds())+4, above+14, "small", "start", "grace runs")
			}
		}
		waits = below && !acts
	}
	for v := 0.0; v <= most; v += 500 {
		d.line(left, y(v), width-right, y(v), "axis")
		d.text(left-8, y(v)+4, "small", "end", "%.0f Mi", v)
	}
	for v := 0.0; v <= last; v += 30 {
		d.text(x(v), above+tall+18, "small", "middle", "%d:%02d", int(v)/60, int(v)%60)
	}
	threshold := func(class, name string, q resource.Quantity, from float64) {
		at := y(from + mib(q))
		d.line(left, at, width-right, at, class)
		d.text(width-right+8, at+4, class, "start", "%s %s", name, q.String())
	}
	hard := s.Spec.Config.EvictionHard[memory]
	threshold("hard", "hard", hard, 0)
	if hasSoft {
		threshold("soft", "soft", soft, 0)
	}
	if reclaim, has := s.Spec.Config.EvictionMinimumReclaim[memory]; has {
		threshold("reclaim", "+ reclaim", reclaim, mib(hard))
	}
	var points []string
	anchors := []string{"end", "start"} // of one victim and the next, which may be evicted soon after
	for i, p := range passes {
		points = append(points, fmt.Sprintf("%.1f,%.1f", x(p.seconds()), y(mib(s.Spec.Steps[i].Signals[memory]))))
		for _, e := range p.Evictions {
			d.line(x(p.seconds()), above-6, x(p.seconds()), above+tall, "goes")
			d.text(x(p.seconds()), above-12, "hard", anchors[0], "%s goes", strings.TrimPrefix(e.Pod, "default/"))
			slices.Reverse(anchors)
		}
	}
	d.put(`<polyline points="%s"/>`, strings.Join(points, " "))
	d.condition(passes, x, above+tall+38)
}

// condition draws how long MemoryPressure stands.
func (d *drawing) condition(passes []pass, x func(float64) float64, y float64) {
	stands := func(p pass) bool { return p.Conditions["MemoryPressure"] }
	for from := slices.IndexFunc(passes, stands); from >= 0; {
		for end := from; ; end++ {
			if end == len(passes)-1 || !stands(passes[end]) {
				d.box(x(passes[from].seconds()), y, x(passes[end].seconds())-x(passes[from].seconds()), 16, "condition")
				next := slices.IndexFunc(passes[end:], stands)
				if from = -1; next > 0 {
					from = end + next
				}
				break
			}
		}
	}
	d.text(width-right+8, y+13, "", "start", "MemoryPressure")
}

// order draws pods in the order of their eviction: what each uses within and above
// its request.
func (d *drawing) order(s *scenario, ranking []string) {
	const row, label = 34.0, 176.0
	d.height = 34 + row*float64(len(ranking))
	most := 0.0
	for _, u := range s.Spec.Steps[0].Usage {
		most = math.Max(most, mib(u.Memory))
	}
	most *= 1.1
	size := func(v float64) float64 { return v / most * (width - label - right) }
	d.text(label, 16, "small", "start", "what it uses; framed: what it requested; red: above that")
	for i, name := range ranking {
		y := 28 + row*float64(i)
		for _, p := range s.Spec.Pods {
			if "default/"+p.Metadata.Name != name {
				continue
			}
			uses, requested := mib(s.Spec.Steps[0].Usage[name].Memory), mib(p.Spec.Containers[0].Resources.Requests["memory"])
			d.text(0, y+16, "", "start", "%d. %s", i+1, p.Metadata.Name)
			d.text(label-10, y+16, "small", "end", "priority %d", p.Spec.Priority)
			d.box(label, y, size(math.Min(uses, requested)), 20, "within")
			d.box(label+size(requested), y, size(math.Max(uses-requested, 0)), 20, "above")
			if requested > 0 {
				d.box(label, y-2, size(requested), 24, "request")
			}
			d.text(label+size(math.Max(uses, requested))+8, y+15, "small", "start", "%.0f of %.0f Mi", uses, requested)
		}
	}
}

package benchmarks

import (
	"reflect"
	"testing"
)

const makefile = `# bench-none: no rule
PKGS ?= ./...
size = $(if $(1),$(2))
.PHONY: bench
bench: ## runs everything
	@go test \
		-bench .
	echo done

benchmark: # another name
campaign: data export
	one
x-campaign: export CGO_ENABLED = 1
x-campaign: campaign ## two
	two
bench-%: data
	pattern
data export: %:
test/bin/%: data
	pattern
bench-late:
	late
`

func TestRulesOfAMakefileAreRead(t *testing.T) {
	rules := Rules(makefile)
	var measure []string
	for _, r := range rules {
		if r.Measures() {
			measure = append(measure, r.Target)
		}
	}
	if want := []string{"bench", "campaign", "x-campaign", "bench-late"}; !reflect.DeepEqual(measure, want) {
		t.Errorf("%v measure, want %v", measure, want)
	}
	if want := (Rule{"bench", nil, "\t@go test \\\n\t\t-bench .\n\techo done\n"}); rules[0].Target != want.Target || rules[0].Recipe != want.Recipe {
		t.Errorf("got %+v, want %+v", rules[0], want)
	}
	if got, want := Needs(rules, "x-campaign"), []string{"campaign", "data", "export"}; !reflect.DeepEqual(got, want) {
		t.Errorf("x-campaign needs %v, want %v", got, want)
	}
}

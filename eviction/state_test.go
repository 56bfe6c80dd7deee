package eviction_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// TestAChangeOfAnyFieldIsSeen sets every field of the state alone: a pass that changes nothing is neither reported nor
// recorded. Conditions, and when signals were observed, are compared elsewhere.
func TestAChangeOfAnyFieldIsSeen(t *testing.T) {
	var st eviction.State
	compared := 0
	eachField(reflect.ValueOf(&st).Elem(), "State", func(field string) {
		if elsewhere := []string{"State.Pressure", "State.Looked", "State.Observed"}; slices.Contains(elsewhere, field) {
			return
		}
		if compared++; st.SameStanding(&eviction.State{}) {
			t.Errorf("a change of %s is not seen", field)
		}
	})
	if !st.SameStanding(&eviction.State{}) || compared < 20 {
		t.Errorf("after %d fields the state is %+v", compared, st)
	}
}

func TestStepsInEffectAreNeitherOverNorFailed(t *testing.T) {
	st := eviction.State{
		Steps:     []eviction.StepTaken{{UID: "warned"}, {UID: "over", Over: true}},
		Restarts:  []eviction.RestartedContainer{{UID: "restarted"}, {UID: "failed", Failed: true}},
		Round:     eviction.ReclaimRound{Pod: "reclaimed"},
		Throttled: eviction.Throttled{Pod: &eviction.Pod{UID: "throttled"}},
	}
	var got []string
	for _, s := range st.StepsInEffect() {
		got = append(got, s.Step.String()+" "+string(s.UID))
	}
	if want := []string{"warn warned", "restart restarted", "reclaim reclaimed", "throttle throttled"}; !slices.Equal(got, want) {
		t.Errorf("the steps in effect are %q, expected %q", got, want)
	}
	if got := (&eviction.State{}).StepsInEffect(); len(got) > 0 {
		t.Errorf("at first %v is in effect", got)
	}
}

// eachField sets each exported field of a struct, and of those in it, calls try, and clears it again. Of an array it
// sets the first element.
func eachField(v reflect.Value, path string, try func(field string)) {
	for i := range v.NumField() {
		f, name := v.Field(i), path+"."+v.Type().Field(i).Name
		if !f.CanSet() {
			continue
		}
		element := f
		if f.Kind() == reflect.Array {
			element = f.Index(0)
		}
		switch element.Interface().(type) {
		case time.Time:
			element.Set(reflect.ValueOf(time.Unix(1, 0)))
		case stats.Amount:
			element.Set(reflect.ValueOf(stats.Known(1)))
		default:
			switch element.Kind() {
			case reflect.Struct:
				eachField(element, name, func(field string) {
					if f.Kind() == reflect.Array {
						field = name
					}
					try(field)
				})
				continue
			case reflect.Slice:
				element.Set(reflect.MakeSlice(element.Type(), 1, 1))
			case reflect.Pointer:
				element.Set(reflect.New(element.Type().Elem()))
			case reflect.Bool:
				element.SetBool(true)
			case reflect.String:
				element.SetString("x")
			case reflect.Uint8:
				element.SetUint(1)
			default:
				element.SetInt(1)
			}
		}
		try(name)
		element.SetZero()
	}
}

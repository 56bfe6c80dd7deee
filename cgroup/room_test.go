package cgroup

import "testing"

func TestRoomLeavesDescriptorsForTheProcess(t *testing.T) {
	for descriptors, want := range map[int64]int64{0: 0, 256: 12, 1024: 51, 65_536: 4915, anyDescriptors: 103_219} {
		r, got := roomOf(descriptors), int64(0)
		for r.Take() {
			got++
		}
		if got != want || !r.IsFull() {
			t.Errorf("%d descriptors have room for %d groups, expected %d", descriptors, got, want)
		}
		if r.Give(); got > 0 && !r.Take() {
			t.Errorf("%d descriptors: a group that was closed leaves no room", descriptors)
		}
	}
}

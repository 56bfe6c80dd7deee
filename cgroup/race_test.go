//go:build race

package cgroup

const raceDetector = true

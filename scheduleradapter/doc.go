// Package scheduleradapter assembles evictd-scheduler, the companion scheduler of
// evictd: the command line, and the parts of `run` and `simulate`. The scheduling and
// binding cycles are in package cycle, the plugins in plugins, the profiles in profile.
package scheduleradapter

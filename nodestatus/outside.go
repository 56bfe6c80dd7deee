package nodestatus

import (
	"cmp"
	"slices"
	"strings"

	"github.com/evictd/evictd/eviction"
)

// User is a cgroup or a pod and what it uses, bytes or tasks.
type User struct {
	Name string
	Used int64
}

// Outside is a shortage that is not that of the pods that may be evicted.
type Outside struct {
	Condition string `json:"condition"`
	// Users are the largest ones outside of these pods, largest first.
	Users []OutsideUser `json:"users"`
}

// OutsideUser is a User with its usage as a quantity.
type OutsideUser struct {
	Name string `json:"name"`
	Used string `json:"used"`
}

// shownUsers bounds the users of an Outside.
const shownUsers = 3

// NewOutside chooses the largest users.
func NewOutside(c eviction.Condition, users []User) Outside {
	slices.SortFunc(users, func(a, b User) int { return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Name, b.Name)) })
	o := Outside{Condition: c.String(), Users: []OutsideUser{}}
	signal := eviction.MemoryAvailable
	if c == eviction.PIDPressure {
		signal = eviction.PIDAvailable
	}
	for _, u := range users[:min(len(users), shownUsers)] {
		o.Users = append(o.Users, OutsideUser{u.Name, signal.Rounded(u.Used)})
	}
	return o
}

// usedOutside begins the text of an Outside.
const usedOutside = "the usage is not that of pods that may be evicted"

// String says it in a sentence without an end.
func (o *Outside) String() string {
	var users []string
	for _, u := range o.Users {
		users = append(users, u.Name+" "+u.Used)
	}
	if len(users) == 0 {
		return usedOutside
	}
	return usedOutside + ": " + strings.Join(users, ", ")
}

// SaysOutside says whether the message of a condition contains the text of an Outside.
func SaysOutside(message string) bool { return strings.Contains(message, usedOutside) }

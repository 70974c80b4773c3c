package gate

import (
	"fmt"
	"strconv"
	"strings"
)

// AnyNode is the Node of a Ticket that is valid on every node.
const AnyNode = "*"

// Ticket permits one step of one load, during one leader's term.
type Ticket struct {
	// Node that may use it: a name or AnyNode.
	Node string
	// Epoch of the Gate, a fencing token: a Ticket of an earlier leader is void.
	Epoch int64
}

// String is the Ticket as an annotation holds it: <node or *>@<epoch>.
func (t Ticket) String() string { return t.Node + "@" + strconv.FormatInt(t.Epoch, 10) }

// ParseTicket parses what [Ticket.String] wrote, strictly: the policies compare the
// text.
func ParseTicket(s string) (Ticket, error) {
	node, epoch, found := strings.Cut(s, "@")
	n, err := strconv.ParseInt(epoch, 10, 64)
	t := Ticket{Node: node, Epoch: n}
	if !found || err != nil || node == "" || n < 1 || t.String() != s {
		return Ticket{}, fmt.Errorf("ticket %q: not <node or *>@<epoch>", s)
	}
	return t, nil
}

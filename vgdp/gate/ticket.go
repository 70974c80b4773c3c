package gate

import (
	"fmt"
	"strconv"
	"strings"
)

// AnyNode is the Node of a Ticket with which every node may accept a load.
const AnyNode = "*"

// Ticket lets one load go on, during one leader's time.
type Ticket struct {
	// Node that may take it: a name or AnyNode.
	Node string
	// Epoch of the Gate. A Ticket of an earlier leader is void.
	Epoch int64
}

// String is the Ticket as an annotation holds it: <node or *>@<epoch>.
func (t Ticket) String() string { return t.Node + "@" + strconv.FormatInt(t.Epoch, 10) }

// ParseTicket reads what [Ticket.String] wrote. It takes nothing that the
// policies, which compare the text, would not take.
func ParseTicket(s string) (Ticket, error) {
	node, epoch, found := strings.Cut(s, "@")
	n, err := strconv.ParseInt(epoch, 10, 64)
	t := Ticket{Node: node, Epoch: n}
	if !found || err != nil || node == "" || n < 1 || t.String() != s {
		return Ticket{}, fmt.Errorf("ticket %q: not <node or *>@<epoch>", s)
	}
	return t, nil
}

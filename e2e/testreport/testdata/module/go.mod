// This module is what the recorded streams beside it are streams of: each
// package ends in its own way.
module github.com/plimsoll-dev/plimsoll

go 1.26.0

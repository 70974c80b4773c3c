// This module is what the recorded streams beside it are streams of.
module github.com/plimsoll-dev/plimsoll

go 1.26.0

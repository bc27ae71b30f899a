// Package runlog reads and writes the run log: what a runner states of its
// calls, line by line, for somebody else to sign.
//
// A line holds a call, the close of a session, a call that was refused, or the
// end; docs/run-log.md has the format. Each line has exactly one spelling, see
// AppendLine. The Reader says that a log is well formed and whole. It knows
// nothing of digests and signatures: what a line states is the runner's word,
// and the messages in it come from hostile code.
package runlog

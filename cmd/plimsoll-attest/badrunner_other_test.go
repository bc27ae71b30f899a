//go:build !linux

package main

// There is no runner to wrap here.
const badRunner = "badrunner"

func badRunnerMain() {}

// Package openshellb has the wire messages of dialect B of the OpenShell API,
// releases 0.1.x, generated from openshellb.proto.
package openshellb

//go:generate go run ../../../internal/genproto openshellb.proto

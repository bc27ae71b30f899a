// Package runner carries out calls in sandboxes of an OpenShell gateway and
// states what it did: a record of each call, unsigned, in the form that a signer
// outside this program checks and signs.
//
// A call is a snippet for node or a project: files, shell steps and the files to
// fetch afterwards. It runs in a sandbox of its own (Run), or as one of many in
// the sandbox of a session (Session.Run), where files stay from call to call and
// no process outlives its call.
//
// The gateway is not taken at its word for what can be read back: which driver
// it has, before every call; and each sandbox, field by field, before any code
// runs in it and before every call of a session. What differs refuses the call,
// by the name of the field. After a command was sent nothing is tried twice:
// what may have run and has no answer is said to have none.
package runner

// Package confine starts a program in a view of the machine of its own: what a
// signer starts a runner with, which must find neither the key nor the bundle.
//
// A process that has many threads, and is undumpable, cannot give its child a
// user namespace. So Start runs the calling program anew, as a launcher that
// knows nothing: it makes the namespaces, has a second process of itself set up
// the view in them, and that one becomes the program, which is process 1 there.
// The launcher ends the program, and with it all that the program started, when
// whoever called Start asks for it or is gone.
//
//	signer ── launcher ── program (process 1 of its namespace)
//
// The view is, in the order in which it is made:
//
//   - namespaces for mounts, processes, IPC, host name, and for the network unless
//     it is asked for; for an ordinary user one for users, without which there are
//     no others
//   - /proc of those processes alone
//   - every file system read-only and without set-user-ID
//   - empty file systems over the folders that are hidden, and in them again what
//     is exposed, read-only; one scratch folder to write to
//   - a /dev of null, zero, full, random and urandom
//   - no controlling terminal, no core files, no keyring, no descriptor but the
//     three streams, which are pipes; the environment that is given
//   - Landlock scopes: no signals and no abstract sockets to the outside
//   - another user, where the caller is root, and no capability
//
// Each is a part that can fail by itself. Then nothing is started, unless the
// caller takes what there is: then Process.Open says what is open.
package confine

// Package bundletest makes bundles and run logs for tests: good ones, and ones
// that are wrong in a chosen way. Everything is made from fixed seeds and fixed
// times, so that the same calls give the same bytes.
//
// JavaScript, Project, Module and Cell make a Call that stands alone, and a
// Session numbers and chains calls. Linked and Unlinked put entries into a
// bundle; Linked writes through chain.Appender. For what an Appender does not
// write there is Writer, which takes any line, link or text, and Relink, which
// links a bundle again after a line was changed.
//
//	s := bundletest.NewSession("a")
//	bundle := bundletest.Linked(bundletest.Harness,
//		s.Add(bundletest.JavaScript("call-1", "console.log(1+1)", "2\n")).Entry(),
//		s.Close())
//
// It is for tests and generators only. It panics when it is misused, and its
// keys are no secret.
package bundletest

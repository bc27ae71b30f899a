package main

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"github.com/plimsoll-attest/plimsoll/internal/cli"
	"github.com/plimsoll-attest/plimsoll/internal/visible"
	"github.com/plimsoll-attest/plimsoll/statement"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// The page is HTML that needs nothing else: no script, no request, no font. Its
// policy forbids them besides. Everything of others is made visible first, as on
// a terminal, and then escaped by the place where it stands.
//
//go:embed page.html.tmpl
var pageText string

var pageTemplates = template.Must(template.New("page").Funcs(template.FuncMap{
	"visible": visible.Text,
	"plural":  func(n uint64, noun string) string { return cli.Plural(n, noun) },
	"short":   func(text string) string { return visible.Text(shorten(text, maxValueBytes)) },
	"when":    when,
	"tiers":   tiers,
	"tier":    showTier,
}).Parse(pageText))

// A page writes the parts of one, in their order. It keeps the first error.
type page struct {
	w   io.Writer
	err error
}

func (p *page) part(name string, data any) {
	if p.err == nil {
		p.err = pageTemplates.ExecuteTemplate(p.w, name, data)
	}
}

// A pageSurface shows entries on a page. Each heading begins a new one.
type pageSurface struct {
	*page
	open bool // an entry
	list bool // of facts
}

func (s *pageSurface) heading(text string) {
	s.end()
	s.open = true
	s.part("entry", text)
}

func (s *pageSurface) end() {
	s.endList()
	if s.open {
		s.part("entry end", nil)
	}
	s.open = false
}

func (s *pageSurface) endList() {
	if s.list {
		s.part("facts end", nil)
	}
	s.list = false
}

func (s *pageSurface) sentence(text string) {
	s.endList()
	s.part("sentence", strings.TrimSpace(text))
}

func (s *pageSurface) fact(name, value string) {
	if !s.list {
		s.part("facts", nil)
		s.list = true
	}
	s.part("fact", struct{ Name, Value string }{name, value})
}

func (s *pageSurface) block(name, note, text string, left int) {
	s.endList()
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, string(visible.Append(nil, strings.TrimSuffix(line, "\n"), true)))
	}
	s.part("block", struct {
		Name, Note, Text string
		Left             uint64
	}{name, note, strings.Join(lines, "\n"), uint64(left)})
}

// A pageLink is a row of the chain.
type pageLink struct {
	statement.Link
	What   string // the entry of the line
	Digest string // of the line
}

// A pageHead is what a page says before its entries. Of Refusal and Report one is
// set.
type pageHead struct {
	Bundle  string
	Verdict string
	Refusal *verify.Refusal
	Report  *verify.Report
	Checks  []verify.CheckResult
	Command string // to check again
}

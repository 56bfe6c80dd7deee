// Package page serves the status page of a program: the files, their headers, and the
// events for open pages. It does not compute what a page shows, and asks for it only
// while a page is open.
package page

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

//go:embed web
var shared embed.FS

// contentTypes are those of what a page may be made of.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// policy permits a page to load and call its own address only; text never becomes
// markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Page is a program's status page. Run sends events to all open pages.
type Page struct {
	own  fs.FS
	feed Feed
	hub
}

// New makes the page of a program from its folder web, with index.html as first file.
// The files may refer to the shared page.css, page.js, theme.js and icon.svg in the
// same folder.
func New(own fs.FS, feed Feed) *Page {
	return &Page{own: own, feed: feed, hub: newHub()}
}

// Handle adds the routes of the page: /, /page/FILE and /v1/events.
func (p *Page) Handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { p.file(w, r, "index.html") })
	mux.HandleFunc("GET /page/{file}", func(w http.ResponseWriter, r *http.Request) { p.file(w, r, r.PathValue("file")) })
	mux.HandleFunc("GET /v1/events", p.events)
}

func (p *Page) file(w http.ResponseWriter, r *http.Request, name string) {
	in, at := p.own, path.Join("web", name)
	if _, err := fs.Stat(in, at); err != nil {
		in = shared
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if kind := contentTypes[path.Ext(name)]; kind != "" { // the system's table is not read for it
		h.Set("Content-Type", kind)
	}
	http.ServeFileFS(w, r, in, at)
}

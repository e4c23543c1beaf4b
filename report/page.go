// Package report makes pages of runs, studies and nights: one self-contained HTML file with drawings in SVG, which
// loads nothing and is readable without script; and the same in Markdown and as JUnit.
//
// Every figure on a page stands under the version, host and command that made it.
package report

import (
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/pipetrain/pipetrain/chart"
)

const style = `*{box-sizing:border-box}
body{margin:0 auto;max-width:1360px;padding:20px 24px 60px;background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,sans-serif}
h1{font-size:22px;margin:0 0 2px;font-weight:600}h2{font-size:16px;margin:34px 0 8px;font-weight:600}
.dim,figcaption small{color:var(--dim)}code,pre{font:12.5px ui-monospace,monospace;overflow-wrap:anywhere}
.banner{border-left:5px solid var(--good);background:var(--panel);padding:10px 14px;margin:14px 0}.banner.bad{border-color:var(--bad)}.banner.warn{border-color:var(--warn)}
.tiles{display:flex;flex-wrap:wrap;gap:10px;margin:14px 0}.tile{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:8px 14px;min-width:120px}
.tile b{display:block;font-size:18px;font-weight:600;font-variant-numeric:tabular-nums}.tile span{color:var(--dim);font-size:12px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:26px 34px}
figure{margin:0;min-width:0}figure.wide{grid-column:1/-1}figcaption{font-weight:600;margin:0 0 8px}figcaption small{display:block;font-weight:400;font-size:12px}
.scroll{overflow-x:auto}.scroll>svg{min-width:720px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}th,td{text-align:right;padding:3px 10px;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--dim);font-weight:600}th:first-child,td:first-child,td.t,th.t{text-align:left}td.t{white-space:normal;min-width:7.5em}
details{margin:8px 0}summary{cursor:pointer;color:var(--dim)}pre{background:var(--panel);padding:10px;overflow-x:auto;white-space:pre}
.bad{color:var(--bad);font-weight:600}.good{color:var(--good);font-weight:600}.warn{color:var(--warn);font-weight:600}
.key i{display:inline-block;width:12px;height:12px;margin:0 4px 0 14px;vertical-align:-1px}
@media(max-width:560px){body{padding:14px 12px 40px}.tile{flex:1 1 40%}}
@media print{body{max-width:none;padding:0}details::details-content{display:block;content-visibility:visible}.banner,figure,tr{break-inside:avoid}.scroll{overflow:visible}}
`

// script opens the tables when the page is printed by a browser that needs it, and lets a wheel with Ctrl zoom
// a timeline. Nothing on the page depends on it.
const script = `addEventListener("beforeprint",()=>document.querySelectorAll("details").forEach(d=>d.open=true));
document.querySelectorAll(".scroll>svg").forEach(s=>{let z=1;s.addEventListener("wheel",e=>{if(!e.ctrlKey)return;e.preventDefault();z=Math.min(20,Math.max(1,z*(e.deltaY<0?1.2:1/1.2)));s.style.width=100*z+"%"},{passive:false})});`

// page collects a page.
type page struct {
	b strings.Builder
}

func (p *page) add(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

func esc(s string) string { return html.EscapeString(s) }

// head begins a page.
func (p *page) head(title, below string) {
	p.add(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="color-scheme" content="light dark"><title>%s</title><style>%s%s</style></head><body><h1>%s</h1><div class="dim">%s</div>`, esc(title), chart.Style, style, esc(title), below)
}

func (p *page) write(w io.Writer) error {
	p.add("<script>%s</script></body></html>\n", script)
	_, err := io.WriteString(w, p.b.String())
	return err
}

func (p *page) h2(s string) { p.add("<h2>%s</h2>", esc(s)) }

// tiles shows figures large.
func (p *page) tiles(pairs ...[2]string) {
	p.add(`<div class="tiles">`)
	for _, x := range pairs {
		p.add(`<div class="tile"><b>%s</b><span>%s</span></div>`, esc(x[0]), esc(x[1]))
	}
	p.add(`</div>`)
}

// figure shows a drawing with its finding, what made it, and its figures as a table.
func (p *page) figure(f figure) {
	class, scroll := "", ""
	if f.wide {
		class, scroll = ` class="wide"`, ` class="scroll"`
	}
	p.add(`<figure%s><figcaption>%s<small>%s</small></figcaption><div%s>%s</div>`, class, esc(f.title), esc(f.from), scroll, f.svg)
	if len(f.rows) > 0 {
		p.add(`<details><summary>the figures as a table</summary><div class="scroll">`)
		p.table(f.head, f.rows)
		p.add(`</div></details>`)
	}
	p.add(`</figure>`)
}

// figure is a drawing of a page.
type figure struct {
	name  string // of its file in plots/
	title string // one sentence: what is to be seen
	from  string
	svg   string
	wide  bool // a timeline, which is moved rather than shrunk
	head  []string
	rows  [][]string
}

// table shows rows; a heading that ends with ":" is of texts.
func (p *page) table(head []string, rows [][]string) {
	p.add(`<table><thead><tr>`)
	text := make([]bool, len(head))
	for i, h := range head {
		class := ""
		if text[i] = strings.HasSuffix(h, ":"); text[i] {
			class = ` class="t"`
		}
		p.add(`<th%s>%s</th>`, class, esc(strings.TrimSuffix(h, ":")))
	}
	p.add(`</tr></thead><tbody>`)
	for _, r := range rows {
		p.add(`<tr>`)
		for i, c := range r {
			class := ""
			if i < len(text) && text[i] {
				class = ` class="t"`
			}
			p.add(`<td%s>%s</td>`, class, esc(c))
		}
		p.add(`</tr>`)
	}
	p.add(`</tbody></table>`)
}

// more shows text that is folded away.
func (p *page) more(title, text string) {
	p.add(`<details><summary>%s</summary><pre>%s</pre></details>`, esc(title), esc(text))
}

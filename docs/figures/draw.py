#!/usr/bin/env python3
"""Draws the figures of docs/architecture.md: draw.py FILE.fig... writes FILE.svg beside each.

A .fig is lines of words, numbers in pixels:
  size W H | what it shows, for who cannot see it
  box NAME X Y W H KIND | text | more lines of text      KIND: room, work, wait, wire, lane
  arrow FROM TO | text       from side to side: NAME.t NAME.b NAME.l NAME.r, with an offset along the side as NAME.b+20
  note X Y | text
"""
import html
import re
import sys

FILL = {"room": "#e8eef6", "work": "#dcebdc", "wait": "#f3f3f1", "wire": "#f6e3cd", "lane": "none"}
LINE = 17  # pixels from one line of text to the next


def place(boxes, end):
    name, side, offset = re.fullmatch(r"(\w+)\.([tblr])([+-]\d+)?", end).groups()
    x, y, w, h = boxes[name]
    d = int(offset or 0)
    return {"t": (x + w / 2 + d, y), "b": (x + w / 2 + d, y + h), "l": (x, y + h / 2 + d), "r": (x + w, y + h / 2 + d)}[side]


def text(x, y, words, anchor="middle", weight="normal"):
    return '<text x="%g" y="%g" text-anchor="%s" font-weight="%s">%s</text>' % (x, y, anchor, weight, html.escape(words))


def draw(lines):
    out, boxes, size, title = [], {}, (0, 0), ""
    for line in lines:
        head, *rest = [part.strip() for part in line.split("|")]
        words = head.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "size":
            size, title = (int(words[1]), int(words[2])), rest[0]
        elif words[0] == "box":
            x, y, w, h = map(int, words[2:6])
            boxes[words[1]] = (x, y, w, h)
            out.append('<rect x="%d" y="%d" width="%d" height="%d" rx="5" fill="%s" stroke="#888"/>' % (x, y, w, h, FILL[words[6]]))
            first = y + h / 2 - LINE * (len(rest) - 1) / 2 + 4
            out += [text(x + w / 2, first + LINE * i, t, weight="bold" if i == 0 and words[6] == "room" else "normal") for i, t in enumerate(rest)]
        elif words[0] == "arrow":
            (x0, y0), (x1, y1) = place(boxes, words[1]), place(boxes, words[2])
            out.append('<path d="M%g,%g L%g,%g" stroke="#444" fill="none" marker-end="url(#tip)"/>' % (x0, y0, x1, y1))
            out += [text((x0 + x1) / 2 + 6, (y0 + y1) / 2 + 4, t, "start") for t in rest]
        elif words[0] == "note":
            out += [text(int(words[1]), int(words[2]) + LINE * i, t, "start") for i, t in enumerate(rest)]
        else:
            sys.exit("what is '%s'?" % words[0])
    return "\n".join(
        ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img" aria-label="%s">'
         % (size + (html.escape(title),)),
         '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
         '<path d="M0,0 L8,4 L0,8 z" fill="#444"/></marker></defs>',
         '<rect width="%d" height="%d" fill="#fff"/>' % size] + out + ["</svg>", ""])


for path in sys.argv[1:]:
    with open(path) as f:
        svg = draw(f)
    with open(path[:-len(".fig")] + ".svg", "w") as f:
        f.write(svg)

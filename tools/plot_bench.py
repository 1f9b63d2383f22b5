#!/usr/bin/env python3
"""Draws results of `baltoro bench` as one SVG: decode speed over depth, and the time of every step.

usage: plot_bench.py RESULT.json... [-o OUT.svg]     (default: the first result's name with .svg)

Several results share the picture, one colour each. Standard library only.
"""
import argparse
import json
import math
import os
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 900, 360  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 44, 52
COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df", "#0a3069")
STEPS_MAX = 4000  # points of one latency series; more are drawn as every n-th


def ticks(low, high, n=6):
    """Round numbers that span [low, high]."""
    span = max(high - low, 1e-12)
    step = 10 ** math.floor(math.log10(span / n))
    step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= n)
    first = math.floor(low / step)
    return [round(k * step, 12) for k in range(first, math.ceil(high / step) + 1)]


class Panel:
    """One pair of axes, `at` pixels from the top."""

    def __init__(self, at, title, x_name, y_name, xs, ys):
        self.at, self.parts = at, []
        self.x_ticks = ticks(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1)
        self.y_ticks = ticks(0, max(ys) * 1.05 if max(ys) > 0 else 1)
        self.axes(title, x_name, y_name)

    def x(self, v):
        low, high = self.x_ticks[0], self.x_ticks[-1]
        return LEFT + (v - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, v):
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return self.at + HEIGHT - BOTTOM - (v - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, text, anchor="middle", extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, colour, width=1.0):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
                          f'stroke-width="{width}"/>')

    def axes(self, title, x_name, y_name):
        bottom, middle = self.at + HEIGHT - BOTTOM, self.at + TOP + (HEIGHT - TOP - BOTTOM) / 2
        self.text(LEFT, self.at + 22, title, "start", ' font-weight="bold"')
        self.text(LEFT + (WIDTH - LEFT - RIGHT) / 2, bottom + 38, x_name)
        self.text(18, middle, y_name, extra=f' transform="rotate(-90 18 {middle:.1f})"')
        for v in self.y_ticks:
            self.line(LEFT, self.y(v), WIDTH - RIGHT, self.y(v), "#d8dee4")
            self.text(LEFT - 8, self.y(v) + 4, f"{v:g}", "end")
        for v in self.x_ticks:
            self.line(self.x(v), bottom, self.x(v), bottom + 5, "#57606a")
            self.text(self.x(v), bottom + 19, f"{v:g}")
        self.line(LEFT, bottom, WIDTH - RIGHT, bottom, "#57606a")

    def path(self, points, colour, width):
        where = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, x, y, colour):
        self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.5" fill="{colour}"/>')

    def legend(self, names):
        for i, name in enumerate(names):
            y = self.at + TOP + 4 + 17 * i
            self.line(WIDTH - RIGHT - 14, y, WIDTH - RIGHT, y, COLOURS[i % len(COLOURS)], 3)
            self.text(WIDTH - RIGHT - 20, y + 4, name, "end")


def decode_panel(at, results):
    """Median decode speed over depth, with bars from the slowest to the fastest repetition."""
    series = [[(d["depth"], d["decode"]["tokens_per_s"]) for d in r["depths"] if d["decode"]] for r in results]
    series = [sorted(s, key=lambda p: p[0]) for s in series]
    flat = [p for s in series for p in s]
    if not flat:
        return None
    panel = Panel(at, "Decode over depth: median, and from slowest to fastest", "tokens in the context", "tokens/s",
                  [x for x, _ in flat], [r["max"] for _, r in flat])
    for i, points in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        panel.path([(x, r["median"]) for x, r in points], colour, 2)
        for x, r in points:
            panel.line(panel.x(x), panel.y(r["min"]), panel.x(x), panel.y(r["max"]), colour, 1.5)
            panel.dot(x, r["median"], colour)
    return panel


def steps_panel(at, results):
    """Every decode step of every depth and repetition, in the order in which they were taken."""
    series = [[ms for d in r["depths"] for ms in d["steps_ms"]] for r in results]
    if not any(series):
        return None
    panel = Panel(at, "Time of every decode step, in order", "step", "ms", [0, max(map(len, series))],
                  [ms for s in series for ms in s])
    for i, steps in enumerate(series):
        stride = len(steps) // STEPS_MAX + 1
        panel.path([(k, steps[k]) for k in range(0, len(steps), stride)], COLOURS[i % len(COLOURS)], 1)
    return panel


def name_of(r):
    return f'{r["model"]} {r["weights"]}, {r["level"]}, {r["threads"]} threads, {r["date"][:10]}'


def draw(results):
    panels = [p for p in (decode_panel(0, results), steps_panel(HEIGHT, results)) if p]
    if not panels:
        sys.exit("plot_bench.py: these results hold no decode steps")
    panels[0].legend([name_of(r) for r in results])
    body = "\n".join(part for p in panels for part in p.parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{2 * HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {2 * HEIGHT}" font-family="sans-serif" font-size="12">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def read(path):
    try:
        with open(path) as f:
            r = json.load(f)
    except (OSError, ValueError) as e:
        sys.exit(f"plot_bench.py: {path}: {e}")
    if not isinstance(r, dict) or not isinstance(r.get("depths"), list):
        sys.exit(f"plot_bench.py: {path}: no result of bench: it has no list of depths")
    return r


def main():
    parser = argparse.ArgumentParser(description="Draw results of `baltoro bench` as one SVG.")
    parser.add_argument("results", nargs="+", metavar="RESULT.json")
    parser.add_argument("-o", "--output", metavar="OUT.svg")
    args = parser.parse_args()
    svg = draw([read(path) for path in args.results])
    output = args.output or os.path.splitext(args.results[0])[0] + ".svg"
    with open(output, "w") as f:
        f.write(svg)
    print(output)


if __name__ == "__main__":
    main()

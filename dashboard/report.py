"""The main figures as one HTML file that needs nothing else: no network, no Streamlit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import vl_convert

from benchmarks.records import Run
from dashboard.accuracy import Classifier, accuracy_rows, baseline_of, read_rows, typical_length
from dashboard.accuracy_charts import accuracy_chart, fidelity_chart, read_chart
from dashboard.chart_parts import Figure, Row, without_legend
from dashboard.cost_charts import METRICS, cost_chart, gains_chart
from dashboard.costs import ENGINE_TITLES, cost_rows, crossovers, latencies_of, paper_gains
from dashboard.data import Results
from dashboard.load_charts import against_load
from dashboard.load_sweeps import against_length, length_sweeps, rate_sweeps
from dashboard.looks import legend_html

Section = tuple[str, str, Figure]

_STYLE = """
:root { color-scheme: light; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem }
.chart { width: 100% } table { border-collapse: collapse; font-size: .9rem }
td, th { border-bottom: 1px solid #ddd; padding: .25rem .8rem .25rem 0; text-align: left }
.scroll { overflow-x: auto } .note { color: #666 }
"""


def make_report(
    results: Results, classifiers: Sequence[Classifier], fidelity: Sequence[Row]
) -> str:
    runs = results.measured_runs()
    sections: list[Section] = []
    tables = ""
    if runs:
        sections += _cost_sections(results, runs[0])
        tables = _crossover_table(results, runs[0])
    sections += _accuracy_sections(results, runs, classifiers)
    smooth = [row for row in fidelity if row["data"] == "smooth" and row["n"] == 2048]
    if smooth:
        words = "Relative error against budget, on smooth data of 2,048 tokens."
        sections.append(("Fidelity", words, fidelity_chart(smooth)))
    sections += _load_sections(results)
    problems = "".join(f"<li>{escape(problem)}</li>" for problem in results.problems[:20])
    return _page(
        sections,
        (f"<p>Could not be read and is left out:</p><ul>{problems}</ul>" if problems else "")
        + _about(runs)
        + tables,
    )


def _cost_sections(results: Results, run: Run) -> list[Section]:
    measurements = results.measurements[run.run]
    rows, crossings = cost_rows(measurements), crossovers(measurements)
    found: list[Section] = []
    for engine, precision in sorted({(r["engine"], r["precision"]) for r in rows}):
        mine = [r for r in rows if (r["engine"], r["precision"], r["batch"]) ==
                (engine, precision, 1)]  # fmt: skip
        rings = [c for c in crossings if (c["engine"], c["precision"], c["batch"]) ==
                 (engine, precision, 1)]  # fmt: skip
        for metric in METRICS:
            if any(r[metric] for r in mine):
                name = f"{metric.capitalize()}: {ENGINE_TITLES.get(engine, engine)}, {precision}"
                found.append((name, "", cost_chart(mine, metric, rings)))
    gains = paper_gains(measurements, "onnxruntime", "fp32")
    for quantity in ("time", "memory"):
        if any(row[f"our_{quantity}"] for row in gains):
            name = f"Linformer's gain over softmax in {quantity}: the paper's and ours"
            found.append((name, "", gains_chart(gains, quantity)))
    return found


def _accuracy_sections(
    results: Results, runs: Sequence[Run], classifiers: Sequence[Classifier]
) -> list[Section]:
    found: list[Section] = []
    for dataset in sorted({each.dataset for each in classifiers}):
        mine = [each for each in classifiers if each.dataset == dataset]
        length, baseline = typical_length(mine), baseline_of(mine)
        if runs and length is not None:
            times = latencies_of(results.measurements[runs[0].run])
            rows = accuracy_rows(mine, times, length[0])
            if any(row["latency"] for row in rows):
                words = f"Latency at {length[0]:,} tokens, the {length[1]} of the test documents."
                figure = accuracy_chart(rows, "accuracy", baseline[:2] if baseline else None)
                found.append((f"Accuracy against latency: {dataset}", words, figure))
        reads = read_rows(mine)
        if reads:
            name = f"Accuracy by how much is read: {dataset}"
            found.append((name, "", read_chart(reads, "accuracy")))
    return found


def _load_sections(results: Results) -> list[Section]:
    newest = sorted(results.load_tests, key=lambda test: test.created, reverse=True)
    lengths = [
        (f"Service memory by document length: {name}", "", against_length(tests, "memory"))
        for name, tests in list(length_sweeps(newest).items())[:1]
    ]
    rates = [
        (f"Load test: {name}", "Latency against offered load.", against_load(tests))
        for name, tests in list(rate_sweeps(newest).items())[:6]
    ]
    return lengths + rates


def _crossover_table(results: Results, run: Run) -> str:
    rows = crossovers(results.measurements[run.run])
    if not rows:
        return ""
    cells = "".join(
        f"<tr><td>{escape(row['title'])}</td><td>{escape(row['engine'])}, "
        f"{escape(row['precision'])}</td><td>{escape(row['words'])}</td>"
        f"<td>{row['gain']:.2f} × at {row['longest']:,}</td></tr>"
        for row in rows
    )
    return (
        "<h2>From which length each attention beats fused softmax</h2><div class='scroll'><table>"
        "<tr><th>attention</th><th>engine</th><th>faster</th><th>gain</th></tr>"
        f"{cells}</table></div>"
    )


def _about(runs: Sequence[Run]) -> str:
    if not runs:
        return "<p>Nothing has been measured yet: run <code>longdoc bench</code>.</p>"
    run = runs[0]
    versions = ", ".join(f"{k} {v}" for k, v in run.environment.versions.items())
    busy = " Others kept the machine busy: good for ratios only." if run.busy else ""
    return (
        f"<p>Measured {escape(run.title)}.{busy}</p><p class='note'>{escape(versions)}; commit "
        f"{escape(run.environment.commit or 'unknown')}; <code>{escape(run.command)}</code></p>"
    )


def _page(sections: Sequence[Section], opening: str) -> str:
    specs: Mapping[str, Any] = {
        f"chart-{index}": without_legend(figure.chart).to_dict()
        for index, (_, _, figure) in enumerate(sections)
    }
    # No text may end the script it stands in.
    data = json.dumps(specs, ensure_ascii=True).replace("</", "<\\/")
    body = "".join(
        f"<h2>{escape(name)}</h2><p>{escape(words)}</p>{legend_html(figure.looks)}"
        f'<div class="chart" id="chart-{index}"></div>'
        for index, (name, words, figure) in enumerate(sections)
    )
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    library = library.replace("</script", "<\\/script")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Longdoc report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>Longdoc: cost and accuracy</h1>"
        f"{opening}{body}<script type='module'>{library}</script>"
        f"<script type='module'>const specs = {data};{_DRAW}</script></body></html>"
    )


_DRAW = """
const actions = {export: true, source: false, compiled: false, editor: false};
for (const [id, spec] of Object.entries(specs)) vegaEmbed("#" + id, spec, {actions});
"""

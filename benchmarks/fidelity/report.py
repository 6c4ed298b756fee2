"""From stored errors to docs/fidelity.md and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.markdown import fill, table
from benchmarks.records import Figure, Run
from benchmarks.store import Store
from models.errors import ConfigError

NAME = "fidelity"
SHOWN_AS_EXACT = 1e-3  # smaller errors are drawn here, so that the others can be read
_BODY = Path(__file__).parent / "page.md"


def find_run(store: Store) -> Run:
    """The last run that measured all it set out to."""
    runs = [run for run in store.load().runs.values() if run.run.startswith(NAME)]
    ended = [run for run in runs if run.finished]
    if not ended:
        raise ConfigError(f"{store.path} holds no fidelity; run `python -m benchmarks.fidelity`")
    return ended[-1]


def figures_of(store: Store) -> list[Figure]:
    """The errors of the last finished run."""
    run = find_run(store).run
    return [figure for figure in store.load().figures if figure.run == run]


def page_of(store: Store) -> str:
    """The page."""
    run, figures = find_run(store), figures_of(store)
    commit = (run.environment.commit or "unknown")[:12]
    head = f"Measured on {run.started[:10]}, run `{run.run}`, commit `{commit}`."
    return fill(_BODY.read_text(encoding="utf-8"), {"HEAD": head, "TABLE": as_table(figures)})


def as_table(figures: Sequence[Figure]) -> str:
    """A Markdown table per kind of data and length: a row per approximation."""
    parts = []
    for data in dict.fromkeys(f.conditions["data"] for f in figures):
        for n in dict.fromkeys(f.conditions["n"] for f in figures):
            panel = _panel(figures, data, n)
            budgets = sorted({f.conditions["budget"] for f in panel})
            rows = []
            for subject in dict.fromkeys(f.subject for f in panel):
                row = {f.conditions["budget"]: f for f in panel if f.subject == subject}
                about = next(iter(row.values())).conditions
                cells = (f"{_error(row[b]):.2f}" if b in row else "" for b in budgets)
                rows.append([subject, about["approximates"], about["budget_name"], *cells])
            head = ["approximation", "of", "budget", *map(str, budgets)]
            parts.append(f"**{data.capitalize()} data, n = {n}**\n\n{table(head, rows)}")
    return "\n\n".join(parts) + "\n"


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Error against budget, a panel per kind of data and length."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and needed for the picture only

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "longdoc"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    kinds = list(dict.fromkeys(f.conditions["data"] for f in figures))
    lengths = list(dict.fromkeys(f.conditions["n"] for f in figures))
    titles = list(dict.fromkeys(f.subject for f in figures))
    colours = dict(zip(titles, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
    figure, axes = plt.subplots(
        len(kinds), len(lengths), figsize=(11, 6.4), sharex=True, sharey="row", squeeze=False
    )
    for row, data in enumerate(kinds):
        for column, n in enumerate(lengths):
            axis = axes[row][column]
            for title in titles:
                line = [f for f in _panel(figures, data, n) if f.subject == title]
                axis.plot(
                    [f.conditions["budget"] for f in line],
                    [max(_error(f), SHOWN_AS_EXACT) for f in line],
                    marker="o",
                    markersize=4,
                    color=colours[title],
                    label=title,
                )
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_title(f"{data} data, n = {n}", fontsize=10)
            axis.grid(alpha=0.3)
            if column == 0:
                axis.set_ylabel("relative error")
            if row == len(kinds) - 1:
                axis.set_xlabel("budget (landmarks, k, features, window)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.91))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(figures: Sequence[Figure], data: str, n: int) -> list[Figure]:
    return [f for f in figures if (f.conditions["data"], f.conditions["n"]) == (data, n)]


def _error(figure: Figure) -> float:
    """Mean over the seeds."""
    return sum(figure.values) / len(figure.values)

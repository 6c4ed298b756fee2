"""The arena's plot: accuracy on the way, against processor time, a panel for each task."""

from __future__ import annotations

import io

from training.arena.table import Results, in_order, title


def progress_picture(results: Results) -> bytes:
    """SVG: a line for each run, one colour for each mechanism."""
    import matplotlib as mpl  # noqa: PLC0415 - heavy, and needed for the picture only

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "longdoc"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    tasks = list(dict.fromkeys(spec.task for spec, _ in results))
    figure, axes = plt.subplots(
        len(tasks), 1, figsize=(9, 3 * len(tasks)), squeeze=False, layout="constrained"
    )
    colours = plt.get_cmap("tab20")
    for axis, task in zip(axes[:, 0], tasks, strict=True):
        part = [each for each in results if each[0].task == task]
        for index, attention in enumerate(in_order(spec.attention for spec, _ in part)):
            runs = [o.curve for spec, o in part if spec.attention == attention and o.curve]
            for number, curve in enumerate(runs):
                # A stage mastered is a whole step upwards, so that a curve rises with the stages.
                axis.plot(
                    [seconds for seconds, _, _ in curve],
                    [stage + accuracy for _, stage, accuracy in curve],
                    color=colours(index % 20),
                    linewidth=1,
                    label=title(attention) if number == 0 else None,
                )
        axis.set_title(task)
        axis.set_xlabel("seconds of processor time")
        axis.set_ylabel("stages mastered + accuracy")
        axis.legend(fontsize=6, ncol=2, loc="center left", bbox_to_anchor=(1, 0.5))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    return buffer.getvalue()

"""The figure of a class overview: what became of each question, and the distribution of scores."""

from grader import verdicts


def class_overview(questions, shares):
    """A class: learners by outcome {question: {outcome: learners}}; distribution of scores, 0 to 1 each."""
    import numpy as np

    from labkit import figures

    rows = max(len(questions), 1)
    figure, (bars, scores) = figures.new_figure(5.6, 3.8 + 0.3 * rows, rows=2, height_ratios=[0.8 + 0.3 * rows, 2])
    names = list(questions)
    left = np.zeros(len(names))
    for outcome, (colour, text) in verdicts.OUTCOMES.items():
        counts = np.array([questions[name].get(outcome, 0) for name in names], float)
        drawn = bars.barh(names, counts, left=left, color=colour, height=0.75, label=outcome)
        bars.bar_label(drawn, [f"{count:g}" if count else "" for count in counts], label_type="center", color=text)
        left += counts
    bars.invert_yaxis()
    bars.set_xlim(0, max(len(shares), 1))
    bars.xaxis.get_major_locator().set_params(integer=True)
    bars.grid(False)
    bars.set(title="What became of each question", xlabel="learners")
    figure.legend(*bars.get_legend_handles_labels(), loc="outside upper left", ncols=3, fontsize=9)
    scores.hist([100 * share for share in shares], bins=np.arange(0, 101, 10), color=figures.COLOURS[0], rwidth=0.9)
    scores.yaxis.get_major_locator().set_params(integer=True)
    scores.set(title="Scores", xlabel="% of all points", xlim=(0, 100), ylabel="learners")
    scores.grid(False, axis="x")
    return figure

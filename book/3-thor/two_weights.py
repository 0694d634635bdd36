"""The model with two weights of natural-gradient.md: its images, its two forms, and what the chapter draws with."""

import base64
import io

import numpy as np
from IPython.display import HTML
from PIL import Image
from sklearn.datasets import load_digits

from labkit import figures

_digits = load_digits()
_chosen = np.isin(_digits.target, (3, 8))
x = _digits.images[_chosen][:, 4:, :4].mean(axis=(1, 2)) / 2  # ink in the lower left quarter, 0 to 8
y = (_digits.target[_chosen] == 8).astype(float)


def line(weights):
    """z = w x + b: logits (N,) and their derivatives by w and b, (N, 2)."""
    w, b = weights
    return w * x + b, np.stack([x, np.ones_like(x)], axis=1)


def threshold(weights):
    """z = w (x - t): logits (N,) and their derivatives by w and t, (N, 2)."""
    w, t = weights
    return w * (x - t), np.stack([x - t, np.full_like(x, -w)], axis=1)


def sigmoid(z):
    return 1 / (1 + np.exp(-np.clip(z, -500, 500)))


def loss(weights, form):
    """Mean of -log p(y | x), in nats."""
    z, _ = form(weights)
    return np.mean(np.logaddexp(0, z) - y * z)


def gradient(weights, form):
    """Of the loss, by both weights: (2,)."""
    z, dz = form(weights)
    return (sigmoid(z) - y) @ dz / len(x)


def as_line(weights):
    """(w, t) -> (w, b)."""
    w, t = weights
    return np.array([w, -w * t])


def descend(weights, form, step, steps):
    """Places that `step`, of weights and form, leads to: (steps + 1, 2); nan once lost."""
    path = [np.array(weights, float)]
    for _ in range(steps):
        try:
            moved = path[-1] - step(path[-1], form)
        except np.linalg.LinAlgError:
            moved = np.array([np.nan, np.nan])
        # false for nan, too
        path.append(moved if np.abs(moved).max() < 1e3 else moved * np.nan)
    return np.array(path)


def momentum_path(weights, form, rate, steps, keep=0.9):
    """`descend` by the rule of nn.Momentum, which remembers."""
    velocity = np.zeros(2)

    def step(q, form):
        nonlocal velocity
        velocity = keep * velocity + gradient(q, form)
        return rate * velocity

    return descend(weights, form, step, steps)


def divergence(weights, other, form):
    """KL of the predictions of two models, in nats: the mean over the images."""
    p, q = sigmoid(form(weights)[0]), sigmoid(form(other)[0])
    tiny = 1e-300
    return np.mean(p * np.log((p + tiny) / (q + tiny)) + (1 - p) * np.log((1 - p + tiny) / (1 - q + tiny)))


def level(weights, form, size, count=120):
    """Points (count + 1, 2) at which the divergence from `weights` is `size`."""
    points = []
    for angle in np.linspace(0, 2 * np.pi, count + 1):
        direction = np.array([np.cos(angle), np.sin(angle)])
        near, far = 0.0, 0.01
        while divergence(weights, weights + far * direction, form) < size and far < 50:
            far *= 2
        for _ in range(30):
            middle = (near + far) / 2
            inside = divergence(weights, weights + middle * direction, form) < size
            near, far = (middle, far) if inside else (near, middle)
        points.append(weights + near * direction)
    return np.array(points)


def ellipse(weights, matrix, size, count=120):
    """Points (count + 1, 2) d around `weights` with d^T matrix d / 2 = size."""
    angle = np.linspace(0, 2 * np.pi, count + 1)
    values, vectors = np.linalg.eigh(matrix)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return weights + (np.sqrt(2 * size / values) * circle) @ vectors.T


LEVELS = (0.38, 0.42, 0.5, 0.6, 0.69, 0.85, 1.1, 1.5, 2.2)


def contours(axis, form, first, second, levels=LEVELS, **options):
    """Lines of equal loss over a grid of weights."""
    values = np.array([[loss((u, v), form) for u in first] for v in second])
    style = {"colors": figures.REFERENCE, "linewidths": 0.8, "alpha": 0.7}
    axis.contour(first, second, values, levels=levels, **style)
    axis.grid(False)
    axis.set(xlabel="w", xlim=(first[0], first[-1]), ylim=(second[0], second[-1]), **options)


def stepper(name, frames, alt, shown="3"):
    """Frames {label: Figure}, one at a time from `shown` on, by radio buttons: HTML and CSS, no script."""
    rules, buttons, images = [], [], []
    for number, (label, frame) in enumerate(frames.items()):
        drawn, file = io.BytesIO(), io.BytesIO()
        frame.savefig(drawn, format="png", dpi=110)
        # A palette: a quarter of the bytes. Of the widest range of colours, or thin lines would lose theirs.
        palette = Image.Quantize.MAXCOVERAGE
        Image.open(drawn).convert("RGB").quantize(128, palette).save(file, "png")
        source = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
        key = f"{name}-{number}"
        rules.append(f"#{key}:checked ~ .{key} {{display: block}}")
        buttons.append(
            f'<input type="radio" name="{name}" id="{key}" {"checked" if label == shown else ""}>'
            f'<label for="{key}" style="margin: 0 0.7em 0 0.25em">{label}</label>'
        )
        images.append(f'<img class="frame {key}" src="{source}" alt="{alt}">')
    style = f"<style>.{name} .frame {{display: none}} {' '.join(rules)}</style>"
    return HTML(
        f'{style}<div class="{name}"><span style="margin-right: 0.7em">Step</span>{"".join(buttons + images)}</div>'
    )

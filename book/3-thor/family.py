"""The layer of family.md, twenty weights on digits, and the preconditioners of THOR and its relatives."""

import numpy as np
from sklearn.datasets import load_digits

DAMPING, BATCH = 0.001, 64


def read_digits(classes=(3, 5, 8, 9, 0)):
    """Ink in the four quarters of an image, 0 to 4, and a one: (N, 5); labels, one-hot without the last: (N, 4)."""
    digits = load_digits()
    chosen = np.isin(digits.target, classes)
    ink = digits.images[chosen].reshape(-1, 2, 4, 2, 4).mean(axis=(2, 4)) / 4
    inputs = np.concatenate([ink.reshape(-1, 4), np.ones((len(ink), 1))], axis=1)
    return inputs, (digits.target[chosen, None] == classes[:4]).astype(float)


def cross_entropy(weights, inputs, labels):
    """Mean loss in nats, and the probabilities (N, m), of weights (m, n); the last digit's logit is always 0."""
    logits = inputs @ weights.T
    log_total = np.logaddexp(0, np.logaddexp.reduce(logits, axis=1))
    return (log_total - (logits * labels).sum(axis=1)).mean(), np.exp(logits - log_total[:, None])


def train(inputs, labels, steps=300, rate=0.1):
    """Weights (4, 5) after so many steps of gradient descent with batches of 64, from zero."""
    weights, random = np.zeros((4, 5)), np.random.default_rng(1)
    for _ in range(steps):
        batch = random.integers(0, len(inputs), BATCH)
        errors = cross_entropy(weights, inputs[batch], labels[batch])[1] - labels[batch]
        weights -= rate * errors.T @ inputs[batch] / BATCH
    return weights


def fisher(inputs, p):
    """Fisher matrix (m n, m n), labels drawn from the model; inputs (N, n), probabilities (N, m)."""
    by_output = np.eye(p.shape[1]) * p[:, :, None] - p[:, :, None] * p[:, None, :]
    blocks = np.einsum("nop,ni,nj->oipj", by_output, inputs, inputs) / len(inputs)
    return blocks.reshape(p.shape[1] * inputs.shape[1], -1)


def second_moment(gradients):
    """Mean of g g^T over batches of 64, from the images' gradients (N, m, n): (m, n, m, n)."""
    rows = gradients.reshape(len(gradients), -1)
    mean = np.outer(rows.mean(axis=0), rows.mean(axis=0))
    return (mean + (rows.T @ rows / len(rows) - mean) / BATCH).reshape(2 * gradients.shape[1:])


def power(matrix, exponent):
    """Power of a symmetric matrix without negative eigenvalues; those that are nearly zero stay zero."""
    values, vectors = np.linalg.eigh(matrix)
    large = values > 1e-9 * values[-1]
    return (vectors[:, large] * values[large] ** exponent) @ vectors[:, large].T


def sides(moment):
    """Shampoo's matrices, the means of dW dW^T (m, m) and of dW^T dW (n, n)."""
    return np.einsum("oipi->op", moment), np.einsum("oioj->ij", moment)


def thor(factor_g, factor_a):
    """Preconditioner (m n, m n), as in the functions below, with both factors damped by the root."""
    damped = [factor + DAMPING**0.5 * np.eye(len(factor)) for factor in (factor_g, factor_a)]
    return np.kron(*map(np.linalg.inv, damped))


def adam(moment):
    return power(np.diag(np.einsum("oioi->oi", moment).ravel()), -0.5)


def shampoo(moment, exponent=-0.25):
    return np.kron(*(power(side, exponent) for side in sides(moment)))


def soap(moment):
    basis = np.kron(*(np.linalg.eigh(side)[1] for side in sides(moment)))
    squares = np.diag(np.diag(basis.T @ moment.reshape(basis.shape) @ basis))
    return basis @ power(squares, -0.5) @ basis.T


def muon(mean):
    return np.kron(power(mean @ mean.T, -0.5), np.eye(mean.shape[1]))

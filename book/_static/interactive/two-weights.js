// The model with two weights of book/3-thor/natural-gradient.md, and three methods that descend on its loss.
"use strict";

const TwoWeights = (() => {
  // Ink in the lower left quarter of scikit-learn's threes and eights, in 32nds of the chapter's x: one number a digit.
  const THREES = [
    16, 21, 21, 23, 23, 25, 25, 27, 28, 29, 29, 30, 31, 31, 31, 32, 32, 32, 33, 33, 33, 33, 33, 33, 33, 33, 34, 34,
    35, 35, 35, 35, 35, 36, 36, 36, 37, 37, 37, 37, 37, 37, 37, 37, 37, 37, 38, 38, 38, 39, 39, 39, 40, 40, 40, 40,
    40, 41, 41, 41, 41, 41, 41, 41, 42, 42, 42, 42, 42, 43, 43, 43, 43, 43, 43, 43, 44, 44, 44, 44, 44, 44, 44, 44,
    44, 44, 44, 45, 45, 45, 45, 46, 46, 46, 46, 46, 47, 47, 47, 47, 47, 47, 48, 48, 48, 48, 49, 49, 50, 50, 50, 51,
    51, 51, 51, 51, 52, 52, 52, 53, 53, 53, 53, 53, 55, 55, 55, 55, 56, 57, 57, 57, 57, 57, 58, 58, 58, 58, 59, 59,
    59, 60, 61, 61, 61, 62, 62, 63, 63, 63, 63, 63, 63, 63, 63, 64, 64, 64, 65, 65, 66, 67, 67, 67, 67, 68, 68, 68,
    69, 69, 70, 71, 72, 72, 73, 74, 74, 78, 78, 79, 80, 80, 93,
  ];
  const EIGHTS = [
    16, 35, 35, 36, 37, 40, 45, 49, 49, 50, 53, 53, 53, 54, 56, 57, 58, 58, 58, 59, 59, 61, 61, 61, 62, 62, 63, 63,
    64, 64, 65, 66, 66, 66, 67, 67, 67, 67, 67, 68, 68, 68, 69, 69, 70, 72, 72, 72, 73, 73, 73, 74, 74, 74, 74, 74,
    74, 74, 74, 74, 75, 75, 75, 76, 76, 76, 77, 77, 77, 77, 77, 77, 78, 78, 78, 78, 78, 78, 79, 79, 80, 80, 80, 80,
    80, 80, 80, 81, 81, 81, 81, 81, 81, 81, 82, 82, 82, 82, 82, 82, 83, 83, 84, 84, 84, 84, 84, 85, 85, 85, 86, 86,
    86, 87, 87, 87, 87, 88, 88, 88, 88, 88, 88, 88, 89, 89, 90, 90, 91, 91, 92, 92, 92, 92, 93, 93, 93, 94, 94, 94,
    95, 95, 95, 95, 95, 96, 96, 96, 97, 98, 98, 99, 99, 100, 101, 101, 102, 102, 104, 104, 104, 105, 106, 106, 106,
    106, 108, 108, 108, 111, 112, 113, 116, 117,
  ];
  // [x, y, share of all images]: many have the same x.
  const images = [THREES, EIGHTS].flatMap((inks, y) => [...new Set(inks)].map((ink) =>
    [ink / 32, y, inks.filter((other) => other === ink).length / (THREES.length + EIGHTS.length)]));
  const sigmoid = (z) => 1 / (1 + Math.exp(-z));

  // z and its derivatives by both weights, in the chapter's two forms.
  const LOGIT = {
    line: ([w, b], x) => [w * x + b, x, 1],
    threshold: ([w, t], x) => [w * (x - t), x - t, -w],
  };

  // Mean loss, its gradient [g0, g1] and the Fisher matrix [f00, f01, f11] of the images.
  function measure(form, weights) {
    const sums = [0, 0, 0, 0, 0, 0];
    for (const [x, y, share] of images) {
      const [z, dz0, dz1] = LOGIT[form](weights, x);
      const p = sigmoid(z);
      const spread = p * (1 - p);
      const loss = Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z))) - y * z;
      const terms = [loss, (p - y) * dz0, (p - y) * dz1, spread * dz0 * dz0, spread * dz0 * dz1, spread * dz1 * dz1];
      terms.forEach((term, i) => { sums[i] += share * term; });
    }
    return { loss: sums[0], gradient: sums.slice(1, 3), fisher: sums.slice(3) };
  }

  // (matrix + damping I)^-1 vector
  function solve([a, b, c], damping, [u, v]) {
    const [top, low] = [a + damping, c + damping];
    const determinant = top * low - b * b;
    return [(low * u - b * v) / determinant, (top * v - b * u) / determinant];
  }

  // The minimum of the line form, by Newton's method, and the bowl that fits there: its second-order expansion.
  let best = [0, 0];
  for (let i = 0; i < 10; i += 1) {
    const { gradient, fisher } = measure("line", best);
    const step = solve(fisher, 0, gradient);
    best = [best[0] - step[0], best[1] - step[1]];
  }
  const { loss: lowest, fisher: hessian } = measure("line", best);

  function evaluate(form, weights) {
    if (form !== "bowl") return measure(form, weights);
    const [u, v] = [weights[0] - best[0], weights[1] - best[1]];
    const gradient = [hessian[0] * u + hessian[1] * v, hessian[1] * u + hessian[2] * v];
    return { loss: lowest + (u * gradient[0] + v * gradient[1]) / 2, gradient, fisher: hessian };
  }

  // The weights that `method` leads to and their losses, steps + 1 of each; NaN once a weight is 1000 or more.
  function descend({ form, start, method, rate = 1, momentum = 0.9, damping = 0, steps }) {
    const path = [start];
    const losses = [];
    let velocity = [0, 0];
    for (let step = 0; step <= steps; step += 1) {
      const here = path[step];
      const { loss, gradient, fisher } = evaluate(form, here);
      losses.push(loss);
      let move = solve(fisher, damping, gradient); // the natural gradient, at a rate of 1
      if (method !== "natural") {
        const keep = method === "momentum" ? momentum : 0;
        velocity = [keep * velocity[0] + gradient[0], keep * velocity[1] + gradient[1]];
        move = [rate * velocity[0], rate * velocity[1]];
      }
      const next = [here[0] - move[0], here[1] - move[1]];
      path.push(Math.max(Math.abs(next[0]), Math.abs(next[1])) < 1000 ? next : [NaN, NaN]);
    }
    return { path: path.slice(0, -1), losses };
  }

  return { evaluate, descend, best, lowest };
})();

window.labkitDescent = TwoWeights.descend;

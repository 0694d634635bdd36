// Gradient descent, momentum and the damped natural gradient on the model with two weights of the chapter.
"use strict";

(() => {
  // Ink in the lower left quarter of scikit-learn's digits, in 32nds of the chapter's x: one number a digit.
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
  const images = [...THREES.map((ink) => [ink / 32, 0]), ...EIGHTS.map((ink) => [ink / 32, 1])];
  const sigmoid = (z) => 1 / (1 + Math.exp(-z));

  // z and its derivatives by both weights, in the chapter's two forms.
  const LOGIT = {
    line: ([w, b], x) => [w * x + b, x, 1],
    threshold: ([w, t], x) => [w * (x - t), x - t, -w],
  };

  // Mean loss, its gradient [g0, g1] and the Fisher matrix [f00, f01, f11] of the images.
  function measure(form, weights) {
    const sums = [0, 0, 0, 0, 0, 0];
    for (const [x, y] of images) {
      const [z, dz0, dz1] = LOGIT[form](weights, x);
      const p = sigmoid(z);
      const spread = p * (1 - p);
      const loss = Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z))) - y * z;
      const terms = [loss, (p - y) * dz0, (p - y) * dz1, spread * dz0 * dz0, spread * dz0 * dz1, spread * dz1 * dz1];
      terms.forEach((term, i) => { sums[i] += term / images.length; });
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
  window.labkitDescent = ({ form, start, method, rate = 1, momentum = 0.9, damping = 0, steps }) => {
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
  };

  const { html, svg, slider, choice, axes, contours, polyline, tell, mount } = Widget;
  const FORMS = { bowl: "bowl", line: "line form", threshold: "threshold form" };
  const METHODS = { gradient: "gradient descent", momentum: "momentum", natural: "natural gradient" };
  const LEVELS = [0.38, 0.42, 0.5, 0.6, 0.69, 0.85, 1.1, 1.5, 2.2];
  const DAMPINGS = [0, ...[-4, -3, -2, -1, 0, 1].flatMap((k) => [1, 2, 3, 5].map((n) => Number(`${n}e${k}`))), 100];
  const ENOUGH = 0.372;
  const LAST = 100;
  // The picture: w, and the second weight by form, with where the paths start at first.
  const FIRST = { low: -0.8, high: 4.6, unit: 0.05 };
  const B = { name: "b", low: -9, high: 1.5, unit: 0.1, start: [0, 0] };
  const SECOND = { bowl: B, line: B, threshold: { name: "t", low: -0.4, high: 4.2, unit: 0.05, start: [1, 3] } };
  const range = ({ low, high }) => [low, high];
  const lines = {}; // of equal loss, by form

  const positions = ({ low, high, unit }) => Math.round((high - low) / unit);
  const valueAt = ({ low, unit }, i) => Number((low + unit * i).toFixed(2));
  const positionOf = ({ low, unit }, value) => Math.round((value - low) / unit);

  mount("fig-natural-paths", (box, alt) => {
    const form = choice("radio", "gd-form", "Loss", FORMS, ["threshold"]);
    const methods = choice("checkbox", "gd-methods", "Show", METHODS, Object.keys(METHODS), true);
    const damping = slider("gd-damping", "damping λ of the natural gradient", {
      max: DAMPINGS.length - 1, position: DAMPINGS.indexOf(0.02), at: (i) => DAMPINGS[i] });
    const rate = slider("gd-rate", "rate of gradient descent and momentum", {
      max: 59, position: 7, at: (i) => (i + 1) / 10, show: (value) => value.toFixed(1) });
    const decimals = { show: (value) => value.toFixed(2).replace("-", "−") };
    const first = slider("gd-first", "start: w", {
      max: positions(FIRST), position: positionOf(FIRST, 1), at: (i) => valueAt(FIRST, i), ...decimals });
    const second = slider("gd-second", "start: t", {
      max: positions(SECOND.threshold), position: positionOf(SECOND.threshold, 3),
      at: (i) => valueAt(SECOND[form.value], i), ...decimals });
    const step = slider("gd-step", "step", { max: LAST, position: 12 });
    const [back, play, on] = ["One step back", "Play", "One step on"].map((text) =>
      html("button", { type: "button" }, text));
    const map = svg("svg", { role: "img", "aria-label": alt, class: "plot" });
    const chart = svg("svg", { role: "img", "aria-label": "Loss against step, a curve a method", class: "plot" });
    const readout = html("div", { class: "readout", "aria-live": "polite" });
    box.append(form.row, methods.row,
      html("div", { class: "panels" }, html("div", { class: "panel" }, map), html("div", { class: "panel" }, chart)),
      step.row, html("div", { class: "buttons" }, back, play, on), readout,
      html("div", { class: "controls" }, damping.row, rate.row, first.row, second.row));
    let area;

    function draw() {
      const setting = { form: form.value, start: [first.value, second.value], rate: rate.value, damping: damping.value };
      const [other, now] = [SECOND[form.value], step.value];
      lines[form.value] ??= contours((weights) => evaluate(form.value, weights).loss, range(FIRST), range(other), LEVELS);
      area = axes(map, { height: 340, x: range(FIRST), y: range(other), xLabel: "w", yLabel: other.name });
      const onMap = ([w, v]) => [area.px(w), area.py(v)];
      area.layer.append(svg("path", { class: "contour", d: lines[form.value].map((ends) => polyline(ends.map(onMap))).join("") }));
      const runs = methods.values.map((method) => [method, labkitDescent({ ...setting, method, steps: LAST })]);
      const top = Math.max(0.75, ...runs.map(([, { losses }]) => 1.1 * losses[0]));
      const losses = axes(chart, { height: 340, x: [0, LAST], y: [0.35, top], xLabel: "step", yLabel: "loss (nats)" });
      const cursor = losses.px(now);
      losses.layer.append(svg("line", { class: "cursor", x1: cursor, x2: cursor, y1: 0, y2: losses.height }));
      for (const [method, run] of runs) {
        const kept = run.path.filter(([w]) => Number.isFinite(w)).length; // before it is lost
        const done = run.path.slice(0, Math.min(now + 1, kept)).map(onMap);
        const curve = run.losses.slice(0, kept).map((loss, i) => [losses.px(i), losses.py(loss)]);
        if (method === "natural" && now < kept) area.layer.append(region(run.path[now], onMap));
        area.layer.append(svg("path", { class: `curve c-${method}`, d: polyline(done) }));
        area.layer.append(...done.map(([cx, cy], i) =>
          svg("circle", { class: `dot c-${method}`, cx, cy, r: i === now ? 5 : 2.5 })));
        losses.layer.append(svg("path", { class: `curve c-${method}`, d: polyline(curve) }));
        if (now < kept) losses.layer.append(svg("circle", { class: `dot c-${method}`, cx: cursor, cy: curve[now][1], r: 5 }));
      }
      const minimum = onMap(form.value === "threshold" ? [best[0], -best[1] / best[0]] : best);
      const [cx, cy] = onMap(setting.start);
      area.layer.append(svg("path", { class: "star", d: star(minimum) }), svg("circle", { class: "start", cx, cy, r: 8 }));
      tell(readout, [`Step ${now}. The minimum has a loss of ${lowest.toFixed(4)}.`,
        ...runs.map(([method, run]) => `${METHODS[method]}: ${sentence(run, now, other.name)}`)]);
    }

    // All d from `place` at which d^T (F + damping I) d / 2 is 0.02: what the damped step counts as equally far.
    function region(place, onMap) {
      const [a, b, c] = evaluate(form.value, place).fisher;
      const around = Array.from({ length: 73 }, (_, i) => [Math.cos((i * Math.PI) / 36), Math.sin((i * Math.PI) / 36)]);
      return svg("path", { class: "metric", d: polyline(around.map(([u, v]) => {
        const size = Math.sqrt(0.04 / (a * u * u + 2 * b * u * v + c * v * v + damping.value));
        return onMap([place[0] + size * u, place[1] + size * v]);
      })) });
    }

    function sentence({ path, losses }, now, name) {
      if (!Number.isFinite(path[now][0])) return "lost";
      const [w, v] = path[now].map((value) => value.toFixed(2).replace("-", "−"));
      const reached = losses.findIndex((loss) => loss < ENOUGH);
      const since = reached < 0 ? `not below ${ENOUGH} in ${LAST} steps` : `below ${ENOUGH} at step ${reached}`;
      return `loss ${losses[now].toFixed(4)} at w = ${w}, ${name} = ${v}; ${since}`;
    }

    const star = ([x, y]) => polyline(Array.from({ length: 10 }, (_, i) => {
      const [size, angle] = [i % 2 ? 3.5 : 9, (i * Math.PI) / 5];
      return [x + size * Math.sin(angle), y - size * Math.cos(angle)];
    }));

    // From now on: what the reader does.
    let clock = null;
    function stop() {
      clearInterval(clock);
      clock = null;
      play.textContent = "Play";
      readout.setAttribute("aria-live", "polite");
    }
    function go(to) {
      step.move(Math.min(Math.max(to, 0), LAST));
      draw();
      if (step.value === LAST) stop();
    }
    back.addEventListener("click", () => { stop(); go(step.value - 1); });
    on.addEventListener("click", () => { stop(); go(step.value + 1); });
    play.addEventListener("click", () => {
      if (clock) { stop(); return; }
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) { go(LAST); return; }
      play.textContent = "Pause";
      readout.setAttribute("aria-live", "off"); // ten sentences a second help nobody
      if (step.value === LAST) step.move(0);
      clock = setInterval(() => go(step.value + 1), 100);
    });
    form.row.addEventListener("input", () => {
      const other = SECOND[form.value];
      second.row.querySelector("label").textContent = `start: ${other.name}`;
      second.input.max = positions(other);
      begin(other.start);
    });
    box.addEventListener("input", draw);

    function begin([w, v]) {
      first.move(positionOf(FIRST, w));
      second.move(positionOf(SECOND[form.value], v));
    }
    map.addEventListener("pointerdown", (event) => {
      if (event.target.classList.contains("start")) map.setPointerCapture(event.pointerId);
    });
    map.addEventListener("pointermove", (event) => {
      if (!map.hasPointerCapture(event.pointerId)) return;
      const { left, top } = map.getBoundingClientRect();
      begin(area.point(event.clientX - left, event.clientY - top));
      draw();
    });
    return draw;
  });
})();

// Paths of gradient descent, momentum and the damped natural gradient on the loss of two-weights.js: the live figure.
"use strict";

(() => {
  const { evaluate, descend, best, lowest } = TwoWeights;
  const { html, svg, say, slider, choice, axes, contours, polyline, tell, mount } = Widget;
  const FORMS = { bowl: say("bowl"), line: say("line form"), threshold: say("threshold form") };
  const METHODS = {
    gradient: say("gradient descent"), momentum: say("momentum"), natural: say("natural gradient") };
  const LEVELS = [0.38, 0.42, 0.5, 0.6, 0.69, 0.85, 1.1, 1.5, 2.2];
  const DAMPINGS = [0, ...[-4, -3, -2, -1, 0, 1].flatMap((k) => [1, 2, 3, 5].map((n) => Number(`${n}e${k}`))), 100];
  const ENOUGH = 0.372;
  const LAST = 100;
  // The picture: w, and the second weight by form, with where the paths start at first.
  const FIRST = { low: -0.8, high: 5, unit: 0.05 };
  const B = { name: "b", low: -10, high: 1.5, unit: 0.1, start: [0, 0] };
  const SECOND = { bowl: B, line: B, threshold: { name: "t", low: -0.4, high: 4.2, unit: 0.05, start: [1, 3] } };
  const range = ({ low, high }) => [low, high];
  const lines = {}; // of equal loss, by form

  const positions = ({ low, high, unit }) => Math.round((high - low) / unit);
  const valueAt = ({ low, unit }, i) => Number((low + unit * i).toFixed(2));
  const positionOf = ({ low, unit }, value) => Math.round((value - low) / unit);

  mount("fig-natural-paths", (box, alt) => {
    const form = choice("radio", "gd-form", say("Loss"), FORMS, ["threshold"]);
    const methods = choice("checkbox", "gd-methods", say("Show"), METHODS, Object.keys(METHODS), true);
    const damping = slider("gd-damping", say("damping λ of the natural gradient"), {
      max: DAMPINGS.length - 1, position: DAMPINGS.indexOf(0.02), at: (i) => DAMPINGS[i] });
    const rate = slider("gd-rate", say("rate of the other methods"), {
      max: 59, position: 7, at: (i) => (i + 1) / 10, show: (value) => value.toFixed(1) });
    const decimals = { show: (value) => value.toFixed(2).replace("-", "−") };
    const first = slider("gd-first", say("start: {name}", { name: "w" }), {
      max: positions(FIRST), position: positionOf(FIRST, 1), at: (i) => valueAt(FIRST, i), ...decimals });
    const second = slider("gd-second", say("start: {name}", { name: "t" }), {
      max: positions(SECOND.threshold), position: positionOf(SECOND.threshold, 3),
      at: (i) => valueAt(SECOND[form.value], i), ...decimals });
    const step = slider("gd-step", say("step"), { max: LAST, position: 12 });
    const [back, play, on] = [say("One step back"), say("Play"), say("One step on")].map((text) =>
      html("button", { type: "button" }, text));
    const map = svg("svg", { role: "img", "aria-label": alt, class: "plot" });
    const chart = svg("svg", { role: "img", "aria-label": say("Loss against step, a curve a method"), class: "plot" });
    const readout = html("div", { class: "readout", "aria-live": "polite" });
    box.append(form.row, methods.row, damping.row,
      html("div", { class: "panels" }, html("div", { class: "panel" }, map), html("div", { class: "panel" }, chart)),
      step.row, html("div", { class: "buttons" }, back, play, on), readout,
      html("div", { class: "controls" }, rate.row, first.row, second.row));
    let area;

    function draw() {
      const height = box.clientWidth < 500 ? 280 : 340;
      const start = [first.value, second.value];
      const setting = { form: form.value, start, rate: rate.value, damping: damping.value, steps: LAST };
      const [other, now] = [SECOND[form.value], step.value];
      const loss = (weights) => evaluate(form.value, weights).loss;
      lines[form.value] ??= contours(loss, range(FIRST), range(other), LEVELS);
      area = axes(map, { height, x: range(FIRST), y: range(other), xLabel: "w", yLabel: other.name });
      const onMap = ([w, v]) => [area.px(w), area.py(v)];
      const level = lines[form.value].map((ends) => polyline(ends.map(onMap))).join("");
      area.layer.append(svg("path", { class: "contour", d: level }));
      const runs = methods.values.map((method) => [method, descend({ ...setting, method })]);
      const top = Math.max(0.75, ...runs.map(([, { losses }]) => 1.1 * losses[0]));
      const losses = axes(chart, {
        height, x: [0, LAST], y: [0.35, top], xLabel: say("step"), yLabel: say("loss (nats)") });
      const cursor = losses.px(now);
      losses.layer.append(svg("line", { class: "cursor", x1: cursor, x2: cursor, y1: 0, y2: losses.height }));
      for (const [method, run] of runs) {
        const kept = run.path.filter(([w]) => Number.isFinite(w)).length; // before it is lost
        const done = run.path.slice(0, Math.min(now + 1, kept)).map(onMap);
        const curve = run.losses.slice(0, kept).map((value, i) => [losses.px(i), losses.py(value)]);
        const dot = (cx, cy, r) => svg("circle", { class: `dot c-${method}`, cx, cy, r });
        if (method === "natural" && now < kept) area.layer.append(region(run.path[now], onMap));
        area.layer.append(svg("path", { class: `curve c-${method}`, d: polyline(done) }));
        area.layer.append(...done.map(([x, y], i) => dot(x, y, i === now ? 5 : 2.5)));
        losses.layer.append(svg("path", { class: `curve c-${method}`, d: polyline(curve) }));
        if (now < kept) losses.layer.append(dot(cursor, curve[now][1], 5));
      }
      const minimum = onMap(form.value === "threshold" ? [best[0], -best[1] / best[0]] : best);
      const [cx, cy] = onMap(start);
      area.layer.append(svg("path", { class: "star", d: star(minimum) }));
      area.layer.append(svg("circle", { class: "start", cx, cy, r: 8 }));
      tell(readout, [say("Step {now}. The minimum has a loss of {lowest}.", { now, lowest: lowest.toFixed(4) }),
        ...runs.map(([method, run]) =>
          say("{method}: {found}", { method: METHODS[method], found: sentence(run, now, other.name) }))]);
    }

    // All d from `place` at which d^T (F + damping I) d / 2 is 0.02: what the damped step counts as equally far.
    // With F + damping I = L L^T these are 0.2 L^-T s for all s of length 1.
    function region(place, onMap) {
      const [a, b, c] = evaluate(form.value, place).fisher;
      const top = Math.sqrt(a + damping.value);
      const side = b / top;
      const low = Math.sqrt(c + damping.value - side * side);
      const around = Array.from({ length: 73 }, (_, i) => {
        const v = (0.2 * Math.sin((i * Math.PI) / 36)) / low;
        return [place[0] + (0.2 * Math.cos((i * Math.PI) / 36) - side * v) / top, place[1] + v];
      });
      return svg("path", { class: "metric", d: polyline(around.map(onMap)) });
    }

    function sentence({ path, losses }, now, name) {
      if (!Number.isFinite(path[now][0])) return say("lost, with a weight beyond 1000");
      const [w, v] = path[now].map((value) => value.toFixed(2).replace("-", "−"));
      const reached = losses.findIndex((value) => value < ENOUGH);
      const since = reached < 0
        ? say("never below {enough} in {last} steps", { enough: ENOUGH, last: LAST })
        : say("first below {enough} at step {reached}", { enough: ENOUGH, reached });
      return say("loss {loss} at w = {w}, {name} = {v}; {since}", { loss: losses[now].toFixed(4), w, name, v, since });
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
      play.textContent = say("Play");
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
      play.textContent = say("Pause");
      readout.setAttribute("aria-live", "off"); // ten sentences a second help nobody
      if (step.value === LAST) step.move(0);
      clock = setInterval(() => go(step.value + 1), 100);
    });
    form.row.addEventListener("input", () => {
      const other = SECOND[form.value];
      second.row.querySelector("label").textContent = say("start: {name}", other);
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

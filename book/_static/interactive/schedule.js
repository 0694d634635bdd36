// The learning-rate schedule with its parameters: labkit/schedules.py, step by step, and its live figure.
"use strict";

(() => {
  const DECAY = {
    cosine: (t) => (1 + Math.cos(Math.PI * t)) / 2,
    linear: (t) => 1 - t,
    quadratic: (t) => (1 - t) ** 2,
  };

  // Python's round(): halves go to the even neighbour.
  const round = (x) => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

  // The rates of all steps, a Float32Array; parameters and errors are those of labkit.schedules.
  window.labkitSchedule = ({ shape, epochs, steps_per_epoch, lr_init, lr_max, lr_end, warmup_epochs }) => {
    const total = Math.trunc(epochs * steps_per_epoch);
    const warmup = round(warmup_epochs * steps_per_epoch);
    if (total < 1) {
      throw new RangeError(`a schedule needs at least one step, not ${epochs} epochs of ${steps_per_epoch} steps`);
    }
    if (!(0 <= warmup && warmup < total)) {
      throw new RangeError(`warm-up of ${warmup_epochs} epochs must end before training does, after ${epochs}`);
    }
    const rates = new Float32Array(total);
    for (let step = 0; step < total; step += 1) {
      const t = (step - warmup) / (total - warmup);
      const rising = lr_init + ((lr_max - lr_init) * step) / Math.max(warmup, 1);
      rates[step] = step < warmup ? rising : lr_end + (lr_max - lr_end) * DECAY[shape](t);
    }
    return rates;
  };

  const { html, svg, say, slider, choice, axes, polyline, tell, mount } = Widget;
  const whole = (n) => n.toLocaleString("en-US");
  const digits = (x) => (x === 0 ? "0" : x.toPrecision(4));

  mount("fig-schedules-shapes", (box, alt) => {
    const shape = choice("radio", "lr-shape", say("Shape"),
      { cosine: say("cosine"), linear: say("linear"), quadratic: say("quadratic") }, ["quadratic"], true);
    const sliders = {
      epochs: slider("lr-epochs", "epochs", { max: 99, position: 89, at: (i) => i + 1 }),
      steps_per_epoch: slider("lr-steps-per-epoch", "steps_per_epoch", { max: 1999, position: 1561, at: (i) => i + 1 }),
      warmup_epochs: slider("lr-warmup", "warmup_epochs", { max: 60, position: 10, at: (i) => i / 2 }),
      lr_init: slider("lr-init", "lr_init", { max: 400, position: 5, at: (i) => i / 500 }),
      lr_max: slider("lr-max", "lr_max", { max: 400, position: 50, at: (i) => i / 500 }),
      lr_end: slider("lr-end", "lr_end", { max: 200, position: 0, at: (i) => i / 500 }),
    };
    const chosen = slider("lr-step", say("read the rate at step"), {
      max: 90 * 1562, position: 45 * 1562, show: whole });
    const picture = svg("svg", { role: "img", "aria-label": alt, class: "plot" });
    const readout = html("div", { class: "readout", "aria-live": "polite" });
    const grid = html("div", { class: "controls" }, ...Object.values(sliders).map((one) => one.row));
    box.append(shape.row, html("div", { class: "panel" }, picture), chosen.row, readout, grid);

    function draw() {
      const setting = Object.fromEntries(Object.entries(sliders).map(([name, one]) => [name, one.value]));
      const { epochs, steps_per_epoch, warmup_epochs, lr_init, lr_max, lr_end } = setting;
      const high = [0.12, 0.25, 0.5, 0.85].find((limit) => limit >= Math.max(lr_init, lr_max, lr_end));
      const far = [10, 30, 100].find((limit) => limit >= epochs);
      const area = axes(picture, {
        height: 300, x: [0, far], y: [0, high], xLabel: say("epoch"), yLabel: say("learning rate") });
      const { layer, px, py } = area;
      const shade = (from, to, name) =>
        layer.append(svg("rect", { x: px(from), y: 0, width: Math.max(px(to) - px(from), 0), height: area.height,
          class: name }));
      shade(0, Math.min(warmup_epochs, epochs), "warmup");
      shade(epochs, far, "beyond");
      const total = epochs * steps_per_epoch;
      chosen.input.max = total; // the last position is the step after the last
      chosen.tell();
      let rates;
      try {
        rates = Object.fromEntries(Object.keys(DECAY).map((one) => [one, labkitSchedule({ ...setting, shape: one })]));
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        tell(readout, [`ValueError: ${error.message}`]);
        return;
      }
      const corner = round(warmup_epochs * steps_per_epoch);
      const some = Array.from({ length: 301 }, (_, i) => Math.round(((total - 1) * i) / 300));
      const steps = [...new Set([...some, Math.max(corner - 1, 0), corner])].sort((a, b) => a - b);
      for (const one of Object.keys(DECAY).sort((a, b) => (a === shape.value) - (b === shape.value))) {
        const d = polyline(steps.map((i) => [px(i / steps_per_epoch), py(rates[one][i])]));
        layer.append(svg("path", { class: `curve c-${one}${one === shape.value ? " chosen" : ""}`, d }));
      }
      const step = chosen.value;
      const rate = rates[shape.value][step];
      const place = px(step / steps_per_epoch);
      layer.append(svg("line", { class: "cursor", x1: place, x2: place, y1: 0, y2: area.height }));
      if (step < total) layer.append(svg("circle", { class: `dot c-${shape.value}`, cx: place, cy: py(rate), r: 5 }));
      const epoch = (step / steps_per_epoch).toFixed(2);
      tell(readout, [step < total
        ? say("Step {step}, epoch {epoch}: rate {rate}.", { step: whole(step), epoch, rate: digits(rate) })
        : say("Step {step}: the array ends at step {last}. An update that reads on fails.",
          { step: whole(step), last: whole(total - 1) }),
      summary(rates[shape.value], lr_max)]);
    }

    function summary(rates, lr_max) {
      const mean = rates.reduce((sum, rate) => sum + rate, 0) / rates.length;
      const low = rates.reduce((count, rate) => count + (rate < lr_max / 10), 0) / rates.length;
      return say("Mean rate {mean}; {share}% of the steps below lr_max / 10.",
        { mean: mean.toFixed(4), share: (100 * low).toFixed(0) });
    }

    box.addEventListener("input", draw);
    return draw;
  });
})();

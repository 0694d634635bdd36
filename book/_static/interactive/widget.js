// What the interactive figures share: elements, labelled inputs, axes.
// A figure is a picture first: its chapter draws it with labkit or numpy. That picture is what a printer gets, and a
// reader without JavaScript. On a screen the live figure takes its place, at first with the same settings.
"use strict";

const Widget = (() => {
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

  // A text with its {fields} filled in. In a translation, languages.py writes the text into the script.
  const say = (text, fields = {}) => text.replace(/\{(\w+)\}/g, (_, name) => fields[name]);

  // A slider from 0 to `max` whose position i means at(i); it shows and speaks that value, not the position.
  function slider(id, label, { max, position, at = (i) => i, show = String }) {
    const input = html("input", { type: "range", id, min: 0, max, step: 1 });
    const shown = html("span", { class: "value", "aria-hidden": "true" });
    const row = html("div", { class: "control" }, html("label", { for: id }, label), shown, input);
    const control = {
      row,
      input,
      get value() { return at(Number(input.value)); },
      move(to) {
        input.value = to;
        control.tell();
      },
      tell() {
        shown.textContent = show(control.value);
        input.setAttribute("aria-valuetext", show(control.value));
      },
    };
    input.addEventListener("input", control.tell);
    control.move(position);
    return control;
  }

  // Radio buttons or check boxes, {value: label}; with swatches, those of class c-VALUE show the curves' colours.
  function choice(type, id, legend, labels, chosen, swatches = false) {
    const row = html("fieldset", { class: "control choice" }, html("legend", {}, legend));
    const inputs = Object.entries(labels).map(([value, label]) => {
      const input = html("input", { type, name: id, id: `${id}-${value}`, value });
      input.checked = chosen.includes(value);
      const swatch = swatches ? [html("span", { class: `swatch c-${value}`, "aria-hidden": "true" })] : [];
      row.append(html("label", { for: input.id }, input, ...swatch, label));
      return input;
    });
    const values = () => inputs.filter((input) => input.checked).map((input) => input.value);
    return { row, inputs, get values() { return values(); }, get value() { return values()[0]; } };
  }

  function ticks([low, high], count) {
    const rough = (high - low) / count;
    const power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
    const step = power * [1, 2, 5, 10].find((nice) => nice * power >= rough * (1 - 1e-9));
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k += 1) found.push(k * step);
    return found.map((value) => [value, value.toFixed(digits).replace("-", "−")]);
  }

  // Axes in `picture`, as wide as it is on the page. Returns the layer to draw in, which cuts off what is outside, and
  // functions from data to its pixels and, `point`, back from the picture's.
  function axes(picture, { height, x, y, xLabel, yLabel }) {
    const width = Math.max(picture.parentElement.clientWidth, 120);
    const inner = { left: 44, top: 24, width: width - 56, height: height - 64 };
    const layer = svg("svg", { x: inner.left, y: inner.top, width: inner.width, height: inner.height });
    const px = (value) => ((value - x[0]) / (x[1] - x[0])) * inner.width;
    const py = (value) => (1 - (value - y[0]) / (y[1] - y[0])) * inner.height;
    const lines = svg("g", { class: "grid" });
    const words = svg("g", { class: "words" });
    const bottom = inner.top + inner.height;
    for (const [value, text] of ticks(x, inner.width / 45)) {
      const place = inner.left + px(value);
      lines.append(svg("line", { x1: place, x2: place, y1: inner.top, y2: bottom }));
      words.append(svg("text", { x: place, y: bottom + 16, "text-anchor": "middle" }, text));
    }
    for (const [value, text] of ticks(y, inner.height / 40)) {
      const place = inner.top + py(value);
      lines.append(svg("line", { x1: inner.left, x2: width - 12, y1: place, y2: place }));
      words.append(svg("text", { x: inner.left - 6, y: place + 4, "text-anchor": "end" }, text));
    }
    words.append(svg("text", { x: 2, y: 13 }, yLabel));
    words.append(svg("text", { x: inner.left + inner.width / 2, y: height - 6, "text-anchor": "middle" }, xLabel));
    const corner = `M${inner.left},${inner.top}V${bottom}H${width - 12}`;
    fill(picture, { width, height, viewBox: `0 0 ${width} ${height}` }, []);
    picture.replaceChildren(lines, layer, svg("path", { class: "spine", d: corner }), words);
    const point = (left, top) => [
      x[0] + ((left - inner.left) / inner.width) * (x[1] - x[0]),
      y[1] - ((top - inner.top) / inner.height) * (y[1] - y[0]),
    ];
    return { layer, px, py, point, ...inner };
  }

  // Short lines at which `value`, a function of a point, crosses one of `levels`: marching triangles on a grid.
  function contours(value, x, y, levels, cells = 100) {
    const between = ([low, high], share) => low + share * (high - low);
    const corners = Array.from({ length: cells + 1 }, (_, i) => Array.from({ length: cells + 1 }, (__, j) => {
      const point = [between(x, i / cells), between(y, j / cells)];
      return { point, height: value(point) };
    }));
    const crossings = (triangle, level) => triangle.flatMap((from, k) => {
      const to = triangle[(k + 1) % 3];
      if (from.height < level === to.height < level) return [];
      const share = (level - from.height) / (to.height - from.height);
      return [from.point.map((start, axis) => between([start, to.point[axis]], share))];
    });
    const found = [];
    for (let i = 0; i < cells; i += 1) {
      for (let j = 0; j < cells; j += 1) {
        for (const third of [corners[i + 1][j], corners[i][j + 1]]) {
          const triangle = [corners[i][j], third, corners[i + 1][j + 1]];
          for (const level of levels) found.push(crossings(triangle, level));
        }
      }
    }
    return found.filter((ends) => ends.length === 2);
  }

  const polyline = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");

  // Show `lines` in a region that screen readers read out when it changes.
  function tell(region, lines) {
    region.replaceChildren(...lines.map((line) => html("p", {}, line)));
  }

  // Put a live figure in the place of the picture of figure `id`. build(box, alt) fills the box; it returns what draws.
  function mount(id, build) {
    const image = document.querySelector(`figure#${id} img`);
    if (!image) return;
    const box = html("div", { class: "widget" });
    image.before(box);
    const draw = build(box, image.alt);
    image.closest("figure").classList.add("live"); // the style sheet shows the box and hides the picture
    let width = 0;
    new ResizeObserver(() => {
      if (width !== box.clientWidth) draw();
      width = box.clientWidth;
    }).observe(box);
    draw();
  }

  return { html, svg, say, slider, choice, axes, contours, polyline, tell, mount };
})();

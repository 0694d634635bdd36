// For book/pdf.py, when formulas and fonts are there: tables and formulas that are too wide shrink; code with lines of up
// to 120 characters too, longer lines wrap. Returns what is cut off all the same, and what is missing.
"use strict";
const [done] = arguments;
const all = (what) => [...document.querySelectorAll(what)];
const size = (e) => parseFloat(getComputedStyle(e).fontSize);

function fit() {
  for (const cell of all("td, th")) if (cell.textContent.trim().length < 12) cell.style.whiteSpace = "nowrap";
  const code = all("main pre");
  for (const box of code) box.style.whiteSpace = "pre";
  const shares = code.map((box) => box.clientWidth / box.scrollWidth);
  code.forEach((box, i) => {
    box.style.whiteSpace = null;
    if (box.textContent.split("\n").length <= 12) box.style.breakInside = "avoid";
    if (shares[i] < 1) box.style.fontSize = `${Math.max(size(box) * shares[i] * 0.99, 8.75)}px`;
  });
  for (const text of all("main p")) if (text.offsetHeight < 70) text.style.breakInside = "avoid"; // up to three lines
  for (const box of all(".admonition, details:not(.hide)")) if (box.offsetHeight < 130) box.style.breakInside = "avoid";
  for (const box of all('main table, mjx-container[display="true"]'))
    for (let tries = 0; tries < 5 && box.scrollWidth > box.parentElement.clientWidth; tries++)
      box.style.fontSize = `${size(box) * Math.min(0.98, box.parentElement.clientWidth / box.scrollWidth)}px`;
}

// Coloured without an element for each word of code, which would be an object of the tagged PDF, three times as large.
function colour(box, rules) {
  const pieces = [];
  for (let texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT), end = 0; texts.nextNode();) {
    const startOffset = end, text = texts.currentNode;
    end += text.length;
    pieces.push([getComputedStyle(text.parentElement).color, {startOffset, endOffset: end}]);
  }
  box.textContent = box.textContent;
  for (const [colour, range] of pieces) {
    const name = `rgb-${colour.match(/\d+/g).join("-")}`, text = box.firstChild;
    if (!CSS.highlights.has(name)) {
      rules.insertRule(`::highlight(${name}) { color: ${colour}; }`);
      CSS.highlights.set(name, new Highlight());
    }
    CSS.highlights.get(name).add(new StaticRange({startContainer: text, endContainer: text, ...range}));
  }
}

function isCut(e) {
  return !e.closest("mjx-container > *, svg > *, pre > *") && (
    e.getBoundingClientRect().right > document.body.clientWidth + 1 ||
    (e.clientWidth && e.scrollWidth > e.clientWidth + 1) ||
    (getComputedStyle(e).overflowY !== "visible" && e.scrollHeight > e.clientHeight + 1));
}

// A picture, a drawn formula, the target of a link.
function isMissing(e) {
  if (e.tagName === "IMG") return !e.naturalWidth;
  if (e.matches("a")) return !document.getElementById(decodeURIComponent(e.getAttribute("href").slice(1)));
  return !e.querySelector("mjx-container:not(:has(mjx-merror))");
}

const innermost = (e, _, found) => !found.some((other) => other !== e && e.contains(other));
const tell = (e) => `${e.closest(".chapter")?.id}: ${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 60)}`
  .replace(/\s+/g, " ");

Promise.all([document.fonts.ready, window.MathJax?.startup?.promise]).then(() => {
  const rules = new CSSStyleSheet();
  document.adoptedStyleSheets.push(rules);
  for (const box of all("main pre")) colour(box, rules);
  fit();
  const bad = [...all("main *").filter(isCut), ...all('img, .math, a[href^="#"]').filter(isMissing)];
  done(bad.filter(innermost).map(tell));
}, (error) => done([String(error)]));

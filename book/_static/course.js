// What scrolls inside its own box can be scrolled with the keyboard too: it is a stop of the Tab key while it is too small.
const BOXES = "article pre, article .output, .pst-scrollable-table-container, article div.math, article mjx-container";

function markScrollable() {
  for (const box of document.querySelectorAll(BOXES)) {
    const { overflowX, overflowY } = getComputedStyle(box);
    const scrolls = (way) => way === "auto" || way === "scroll";
    const wide = scrolls(overflowX) && box.scrollWidth > box.clientWidth;
    const high = scrolls(overflowY) && box.scrollHeight > box.clientHeight;
    if (wide || high) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

window.addEventListener("load", async () => {
  await Promise.all([window.MathJax?.startup.promise, document.fonts.ready]);
  markScrollable();
});
window.addEventListener("resize", markScrollable);

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

// The same page in another language, where that has been built (_static/languages.js says so) and lies beside this one:
// its script can be loaded then. The English front page opens in the browser's language, until a reader has chosen one.
for (const link of document.querySelectorAll(".other-language")) {
  if (!(window.LANGUAGES ?? []).includes(link.dataset.language)) continue;
  const there = document.createElement("script");
  there.src = link.dataset.there;
  there.onload = () => {
    link.hidden = false;
    link.addEventListener("click", () => localStorage.setItem("language", link.dataset.language));
    const same = (one) => one.slice(0, 2) === link.dataset.language.slice(0, 2);
    const front = "front" in link.dataset && document.documentElement.lang === "en";
    if (front && !localStorage.getItem("language") && same(navigator.language)) location.replace(link.href);
  };
  document.head.append(there);
}

// The search page's summaries quote the text of a page, without the frame around it and the marks of its formulas.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined") return;
  const { htmlToText } = Search;
  Search.htmlToText = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const frame = ".bd-header-article, .onlyprint, .bd-sidebar-secondary, .prev-next-footer";
    for (const part of page.querySelectorAll(frame)) part.remove();
    return htmlToText(page.documentElement.outerHTML, anchor).replace(/\\[()[\]]/g, "");
  };
});

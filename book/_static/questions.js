// Opening a choice closes the question's others. The browser keeps which one is open, for a page in all languages, and
// the heading counts the questions whose right choice is open.
for (const section of document.querySelectorAll("section:has(> .question)")) {
  const questions = section.querySelectorAll(":scope > .question");
  const count = () => {
    const right = section.querySelectorAll(":scope > .question > .right[open]").length;
    section.querySelector("h2").dataset.progress = `${right}/${questions.length}`;
  };
  for (const { id } of questions) {
    const key = `${DOCUMENTATION_OPTIONS.pagename} ${id}`;
    document.querySelectorAll(`#${id} > .choice`).forEach((choice, i) => {
      choice.name = id;
      choice.open = localStorage.getItem(key) === `${i}`;
      choice.addEventListener("toggle", () => {
        if (choice.open) localStorage.setItem(key, i);
        else if (localStorage.getItem(key) === `${i}`) localStorage.removeItem(key);
        count();
      });
    });
  }
  count();
}

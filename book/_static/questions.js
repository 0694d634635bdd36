// Opening a choice closes the question's others. This browser keeps which one is open, for all languages of a page, and
// the heading counts the questions whose right choice is open.
const kept = (question) => `${DOCUMENTATION_OPTIONS.pagename} ${question.id}`;

for (const section of document.querySelectorAll("section:has(> .question)")) {
  const questions = section.querySelectorAll(":scope > .question");
  const count = () => {
    const right = [...questions].filter((question) => question.querySelector(".right[open]")).length;
    section.querySelector("h2").dataset.progress = `${right}/${questions.length}`;
  };
  for (const question of questions) {
    question.querySelectorAll(".choice").forEach((choice, i) => {
      choice.name = question.id;
      choice.open = localStorage.getItem(kept(question)) === `${i}`;
      choice.addEventListener("toggle", () => {
        if (choice.open) localStorage.setItem(kept(question), i);
        else if (localStorage.getItem(kept(question)) === `${i}`) localStorage.removeItem(kept(question));
        count();
      });
    });
  }
  count();
}

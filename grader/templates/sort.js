
for (const table of document.querySelectorAll(".sorts")) {
  const heads = [...table.tHead.rows[0].cells], rows = [...table.tBodies[0].rows];
  const order = new Intl.Collator(undefined, { numeric: true });
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    const text = row => row.cells[column].textContent.trim();
    const upwards = column
      ? (one, other) => parseFloat(text(one)) - parseFloat(text(other))
      : (one, other) => order.compare(text(one), text(other));
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      table.tBodies[0].append(...rows.sort((one, other) => sign * upwards(one, other)));
    });
  });
}

"use strict";
// Read-outs below the charts; the page is whole without them.
for (const figure of document.querySelectorAll("figure")) {
  const read = figure.querySelector(".read");
  if (!read) continue;
  const show = event => {
    const said = event.target.getAttribute && event.target.getAttribute("data-say");
    if (said) read.textContent = said;
  };
  figure.addEventListener("pointermove", show);
  figure.addEventListener("pointerdown", show);
}
const data = document.getElementById("data"), link = document.getElementById("download");
if (data && link) {
  link.href = URL.createObjectURL(new Blob([data.textContent], { type: "application/json" }));
  link.hidden = false;
}

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
// The legend switches its lines off and on.
for (const svg of document.querySelectorAll("svg")) {
  const names = [...svg.querySelectorAll("text.legend")];
  if (names.length < 2) continue;
  for (const name of names) {
    const sign = name.previousElementSibling;
    const which = sign && [...sign.classList].find(word => word.length === 1);
    if (!which) continue;
    const all = [...svg.querySelectorAll("." + which)].filter(one => one !== sign);
    const turn = () => {
      const off = name.getAttribute("aria-pressed") === "true";
      name.setAttribute("aria-pressed", !off);
      name.style.opacity = off ? 0.45 : 1;
      for (const one of all) one.style.display = off ? "none" : "";
    };
    // A picture for who does not see it; what can be pressed within it is a group.
    svg.setAttribute("role", "group");
    name.setAttribute("role", "button");
    name.setAttribute("tabindex", "0");
    name.setAttribute("aria-pressed", "true");
    name.style.cursor = "pointer";
    name.addEventListener("click", turn);
    name.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); turn(); }
    });
  }
}
const data = document.getElementById("data"), link = document.getElementById("download");
if (data && link) {
  link.href = URL.createObjectURL(new Blob([data.textContent], { type: "application/json" }));
  link.hidden = false;
}

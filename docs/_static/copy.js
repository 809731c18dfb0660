// A button on every block of code that copies it. Output (language "text", unless it is a named file) has none.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const output = block.closest(".highlight-text") && !block.closest(".literal-block-wrapper");
    if (!navigator.clipboard || output) continue;
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("pre").innerText);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
  // A drawing opens by itself when it is clicked: on a phone its labels are too small to read.
  for (const drawing of document.querySelectorAll('article img[src$=".svg"]')) {
    if (drawing.closest("a")) continue;
    const link = document.createElement("a");
    link.href = drawing.src;
    link.title = "Open this picture";
    drawing.replaceWith(link);
    link.append(drawing);
  }
});

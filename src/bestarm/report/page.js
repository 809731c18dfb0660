// What a page can do besides being read: values under the pointer, sorting, filtering and CSV files of tables,
// highlighting an option in all pictures, copying commands, and links to a moment (#at=12). Nothing is fetched,
// and the page says the same without it.
"use strict";

(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (kind, keys = {}, ...children) => {
    const made = Object.assign(document.createElement(kind), keys);
    made.append(...children);
    return made;
  };
  const chosen = new Map(); // what a reader chose for a table, by its place: sorting and filter
  let picked = null; // the option that stays highlighted
  const tip = make("div", {className: "tip", hidden: true});
  tip.setAttribute("role", "status");

  // Highlight an option, by its number, in all pictures and tables; null highlights none.
  function highlight(option) {
    document.body.classList.toggle("picked", option !== null);
    for (const part of document.querySelectorAll("[data-option]"))
      part.classList.toggle("on", option !== null && part.dataset.option === option);
    for (const key of document.querySelectorAll(".key"))
      key.setAttribute("aria-pressed", String(picked !== null && key.dataset.option === picked));
  }

  function pick(option) {
    picked = picked === option ? null : option;
    highlight(picked);
  }

  function say(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const width = document.documentElement.clientWidth;
    const left = Math.min(x + 12, width - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(4, left) + scrollX}px`;
    tip.style.top = `${Math.max(4, y - tip.offsetHeight - 12) + scrollY}px`;
  }

  function hush() {
    tip.hidden = true;
    highlight(picked);
  }

  // The points of a chart: of each line its option and name, and of each point its value, place and words.
  function pointsOf(chart) {
    return [...chart.querySelectorAll("[data-points]")].map(line => ({
      option: line.dataset.option,
      name: line.dataset.name,
      points: line.dataset.points.split("|").map(point => {
        const [value, x, y, ...words] = point.split("~");
        return {value: +value, x: +x, y: +y, words: words.join("~")};
      }),
    }));
  }

  function nearest(chart, x, y) {
    let best = null, least = Infinity;
    for (const line of pointsOf(chart))
      for (const point of line.points) {
        const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
        if (distance < least) [best, least] = [{line, point}, distance];
      }
    return best;
  }

  function place(chart, event) {
    const box = chart.getBoundingClientRect(), view = chart.viewBox.baseVal;
    return [(event.clientX - box.left) * view.width / box.width, (event.clientY - box.top) * view.height / box.height];
  }

  function tell(chart, found) {
    const box = chart.getBoundingClientRect(), scale = box.width / chart.viewBox.baseVal.width;
    highlight(found.line.option);
    say(`${found.line.name}, ${found.point.words}`, box.left + found.point.x * scale, box.top + found.point.y * scale);
  }

  // A moment of a chart: a cursor, and the values of all its lines at that time.
  function moment(chart, at) {
    const {left, right, low, high, log, top, bottom} = chart.dataset;
    const figure = chart.closest("figure");
    chart.querySelector(".cursor")?.remove();
    figure?.querySelector(".moment")?.remove();
    if (at === null || at < +low || at > +high) return;
    const share = log ? Math.log(at / +low) / Math.log(+high / +low) : (at - +low) / Math.max(+high - +low, 1e-12);
    const x = +left + share * (+right - +left);
    const cursor = document.createElementNS(SVG, "path");
    cursor.setAttribute("d", `M${x} ${top}V${bottom}`);
    cursor.setAttribute("class", "cursor");
    chart.append(cursor);
    const said = pointsOf(chart).map(line => {
      const last = line.points.filter(point => point.value <= at).at(-1);
      return last ? `${line.name}, ${last.words}` : null;
    }).filter(Boolean);
    const told = make("p", {className: "moment", textContent: `At ${chart.dataset.axis} ${at}: ${said.join("; ")}.`});
    figure?.querySelector("figcaption")?.before(told);
  }

  const linked = () => /^#at=(\d+)$/.exec(location.hash)?.[1] ?? null;

  function showLinked() {
    const at = linked();
    const charts = document.querySelectorAll("#intervals .chart");
    for (const chart of charts) moment(chart, at === null ? null : +at);
    if (at !== null) [...charts].find(chart => chart.checkVisibility())?.scrollIntoView({block: "center"});
  }

  function enliven(chart) {
    if (chart.tabIndex >= 0) return;
    chart.tabIndex = 0;
    let at = null; // the line and the point that the keyboard has reached
    const point = event => {
      if (event.target.closest(".key")) return;
      const found = nearest(chart, ...place(chart, event));
      if (found) tell(chart, found);
    };
    chart.addEventListener("pointermove", point);
    chart.addEventListener("pointerdown", point);
    chart.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") hush(); });
    chart.addEventListener("blur", hush);
    chart.addEventListener("click", event => {
      const found = event.target.closest(".key") ? null : nearest(chart, ...place(chart, event));
      if (!found || !chart.closest("#intervals") || document.getElementById("slider")) return;
      history.replaceState(null, "", `#at=${found.point.value}`);
      moment(chart, found.point.value);
    });
    chart.addEventListener("keydown", event => {
      const step = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
      if (event.key === "Escape") return hush();
      if (!step || event.target !== chart) return;
      event.preventDefault();
      const lines = pointsOf(chart);
      at = at ? [at[0] + step[0], at[1] + step[1]] : [0, lines[0].points.length - 1];
      at[0] = Math.max(0, Math.min(at[0], lines.length - 1));
      at[1] = Math.max(0, Math.min(at[1], lines[at[0]].points.length - 1));
      tell(chart, {line: lines[at[0]], point: lines[at[0]].points[at[1]]});
    });
    for (const key of chart.querySelectorAll(".key")) {
      key.setAttribute("tabindex", "0");
      key.setAttribute("role", "button");
      key.setAttribute("aria-pressed", "false");
      key.setAttribute("aria-label", `highlight ${key.querySelector(".name").textContent}`);
      key.addEventListener("click", () => pick(key.dataset.option));
      key.addEventListener("pointerenter", () => highlight(key.dataset.option));
      key.addEventListener("pointerleave", () => highlight(picked));
      key.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        pick(key.dataset.option);
      });
    }
    chart.setAttribute("role", "group");
  }

  const words = cell => cell.querySelector(".row") ? cell.querySelector("title").textContent : cell.textContent.trim();

  function value(cell) {
    const text = words(cell).replaceAll(",", "");
    const number = parseFloat(text.replace(/^≥ |^below /, ""));
    return text === "∞" ? Infinity : number;
  }

  function arrange(table, state) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, k) => {
      const on = state.sort === k;
      if (on) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const rows = [...body.rows];
    rows.forEach((row, k) => { row.dataset.at ??= k; });
    const sign = state.down ? -1 : 1;
    rows.sort((a, b) => {
      if (state.sort === null) return a.dataset.at - b.dataset.at;
      const [one, two] = [a.cells[state.sort], b.cells[state.sort]];
      const [x, y] = [value(one), value(two)];
      if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1; // unknown values come last
      if (!Number.isNaN(x) && x !== y) return sign * (x - y);
      return sign * words(one).localeCompare(words(two), "en", {numeric: true});
    });
    body.append(...rows);
    const wanted = state.filter.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }

  const csv = table => [...table.rows].map(row => [...row.cells].map(cell => {
    const text = words(cell);
    const safe = /^[=+@\t\r]|^-[^\d.]/.test(text) ? `'${text}` : text; // no formula in a spreadsheet
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }).join(",")).join("\r\n") + "\r\n";

  function download(name, text) {
    const link = make("a", {href: URL.createObjectURL(new Blob([text], {type: "text/csv"})), download: name});
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function equip(table) {
    const box = table.closest(".scroll");
    if (!box || box.previousElementSibling?.classList.contains("tools")) return;
    const caption = table.caption?.textContent ?? "table";
    const section = table.closest("section");
    const key = `${section?.id} ${[...(section?.querySelectorAll("table") ?? [])].indexOf(table)}`;
    const state = chosen.get(key) ?? {sort: null, down: false, filter: ""};
    chosen.set(key, state);
    const tools = make("div", {className: "tools"});
    if (table.tBodies[0].rows.length > 1)
      [...table.tHead.rows[0].cells].forEach((head, k) => {
        if (!head.textContent.trim() || head.querySelector("svg")) return;
        const button = make("button", {className: "sort", type: "button"}, ...head.childNodes);
        button.addEventListener("click", () => {
          const numeric = head.classList.contains("n");
          if (state.sort !== k) [state.sort, state.down] = [k, numeric];
          else if (state.down === numeric) state.down = !numeric;
          else state.sort = null;
          arrange(table, state);
        });
        head.append(button);
      });
    if (table.tBodies[0].rows.length > 8) {
      const filter = make("input", {type: "search", placeholder: "filter", value: state.filter});
      filter.setAttribute("aria-label", `filter: ${caption}`);
      filter.addEventListener("input", () => { state.filter = filter.value; arrange(table, state); });
      tools.append(filter);
    }
    const button = make("button", {type: "button", textContent: "CSV"});
    button.setAttribute("aria-label", `download as CSV: ${caption}`);
    const file = caption.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60);
    button.addEventListener("click", () => download(`${file || "table"}.csv`, csv(table)));
    tools.append(button);
    box.before(tools);
    if (state.sort !== null || state.filter) arrange(table, state);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch { // a page from disk, or one without permission
      const area = make("textarea", {value: text});
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function offer(block) {
    if (block.previousElementSibling?.classList.contains("copy")) return;
    const button = make("button", {className: "copy", type: "button", textContent: "Copy"});
    button.setAttribute("aria-label", `copy: ${block.textContent.slice(0, 60)}`);
    button.addEventListener("click", async () => {
      await copy(block.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    block.before(button);
  }

  // Add all this to a part of the page; the live page calls it for each part that it has replaced.
  function enhance(root) {
    root.querySelectorAll(".chart").forEach(enliven);
    root.querySelectorAll(".scroll > table").forEach(equip);
    root.querySelectorAll("pre").forEach(offer);
    for (const row of root.querySelectorAll("tr[data-option]")) {
      row.addEventListener("pointerenter", () => highlight(row.dataset.option));
      row.addEventListener("pointerleave", () => highlight(picked));
    }
    for (const mark of root.querySelectorAll("[data-tip]")) {
      const show = event => say(mark.dataset.tip, event.clientX, event.clientY);
      mark.addEventListener("pointerenter", show);
      mark.addEventListener("pointerdown", show);
      mark.addEventListener("pointerleave", hush);
    }
    highlight(picked);
    if (linked() !== null && !document.getElementById("slider"))
      root.querySelectorAll("#intervals .chart").forEach(chart => moment(chart, +linked()));
  }

  window.bestarm = {enhance};
  document.body.append(tip);
  if (!document.getElementById("slider")) { // the live page's own script does this for its parts
    enhance(document);
    window.addEventListener("hashchange", showLinked);
    if (linked() !== null) showLinked();
  }
})();

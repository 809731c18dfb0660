// Keeps the live page up to date. The server that served this file sends complete sections; it escapes all
// untrusted text in them, and the page's policy blocks any other script.
"use strict";

const at = id => document.getElementById(id);
const main = document.querySelector("main");
const slider = at("slider");
const WAITS = [500, 1000, 2000, 5000];
const PATIENCE = 20000; // milliseconds without a message from the server, which sends one every few seconds

let last = document.body.dataset.last; // id of the newest event shown
let live = true; // or looking back
let kept = null; // the newest sections of the run, by id, while an earlier moment is shown
let order = [...main.children].map(section => [section.id, section.querySelector("h2")?.textContent ?? ""]);
let title = document.title;
let said = null; // the last message from the server
let heard = Date.now();
let lost = false;
let failures = 0;
let source = null;
let asked = 0; // number of the newest request for an earlier moment
let timer = 0;
const viewer = Math.random().toString(36).slice(2);

const STOPS = "a[href], summary, .scroll, button, input, .chart, .key";

const sent = new WeakMap(); // the parts of the page as the server sent them, without what page.js added
for (const section of main.children) sent.set(section.lastElementChild, section.lastElementChild.innerHTML);
window.bestarm.enhance(main);

// Put new sections into the page; open parts, focus and scroll position are kept.
function show(sections, wanted, name) {
  const bar = at("bar").offsetHeight;
  const anchor = [...main.children].find(section => section.getBoundingClientRect().bottom > bar + 1);
  const before = anchor?.getBoundingClientRect().top;
  // First of all: otherwise the others would be moved, and lose the focus.
  for (const section of [...main.children])
    if (!wanted.some(([id]) => id === section.id)) section.remove();
  const links = [];
  let place = null;
  for (const [id, heading] of wanted) {
    let section = at(id);
    if (!section || section.parentElement !== main) {
      section = document.createElement("section");
      section.id = id;
      if (heading) section.append(Object.assign(document.createElement("h2"), {textContent: heading}));
      section.append(document.createElement("div"));
    }
    if ((place ? place.nextElementSibling : main.firstElementChild) !== section)
      place ? place.after(section) : main.prepend(section);
    place = section;
    if (id in sections) replace(section.lastElementChild, sections[id]);
    if (heading) links.push([id, heading]);
  }
  relink(links);
  document.title = name;
  const after = anchor?.isConnected ? anchor.getBoundingClientRect().top : before;
  if (window.scrollY > 0 && after !== before) window.scrollBy({top: after - before, behavior: "instant"});
}

// What a control is, for finding it again in the new content of its part.
const named = stop => `${stop.tagName} ${stop.getAttribute("aria-label") ?? stop.textContent.trim()}`;

function replace(place, html) {
  const open = [...place.querySelectorAll("details")].map(details => details.open);
  const spots = [...place.querySelectorAll(".scroll")].map(box => [box.scrollLeft, box.scrollTop]);
  const focus = place.contains(document.activeElement) ? named(document.activeElement) : null;
  place.innerHTML = html;
  sent.set(place, html);
  window.bestarm.enhance(place);
  place.querySelectorAll("details").forEach((details, k) => { details.open = open[k] ?? details.open; });
  place.querySelectorAll(".scroll").forEach((box, k) => { if (spots[k]) box.scrollTo(...spots[k]); });
  if (focus !== null)
    [...place.querySelectorAll(STOPS)].find(stop => named(stop) === focus)?.focus({preventScroll: true});
}

function relink(links) {
  const list = at("links");
  const now = [...list.querySelectorAll("a")].map(link => link.getAttribute("href").slice(1));
  if (now.join() === links.map(([id]) => id).join()) return;
  list.replaceChildren(...links.map(([id, heading]) => {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("a"), {href: `#${id}`, textContent: heading}));
    return item;
  }));
}

const count = n => n.toLocaleString("en");

function ago(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

// The status line. Screen readers announce its changes, so fast-changing numbers are elsewhere.
function tell() {
  let state = said?.state ?? "waiting", text = "reading";
  if (said) {
    const quiet = (said.quiet ?? 0) + (Date.now() - heard) / 1000;
    text = {
      going: quiet > 10 ? `Live; nothing new for ${ago(quiet)}.` : "Live.",
      over: "Finished: this is the final result.",
      waiting: `Waiting: ${said.note}.`,
      reading: `Reading the journal: ${Math.floor(100 * said.n / Math.max(1, said.known))} %.`,
      trouble: `The run can't be followed at the moment: ${said.note}`,
    }[state];
  }
  if (!live) [state, text] = ["back", "Looking back. The run continues; “Live” returns to it."];
  if (!live && said?.state === "over") text = "Looking back. “Live” returns to the end.";
  if (lost) [state, text] = ["lost", lost === true ? "Connection lost, trying again." : lost];
  document.body.className = state;
  if (at("state").textContent !== text) at("state").textContent = text;
  at("live").setAttribute("aria-pressed", String(live));
  if (!said) return;
  at("place").textContent = live ? `${count(said.n)} events` : `event ${count(+slider.value)} of ${count(said.n)}`;
}

function news(event) {
  const plain = JSON.parse(event.data);
  said = plain;
  heard = Date.now();
  lost = false;
  failures = 0;
  slider.max = plain.n;
  if (plain.sections) {
    last = event.lastEventId;
    [order, title] = [plain.order, plain.title];
    if (live) {
      slider.value = plain.n;
      show(plain.sections, order, title);
    } else Object.assign(kept, plain.sections);
  }
  tell();
}

function connect() {
  source = new EventSource(`events?last=${encodeURIComponent(last)}`);
  source.onmessage = news;
  source.addEventListener("beat", news);
  source.onerror = again;
}

// The browser reconnects by itself, but not after every kind of failure.
async function again() {
  source?.close();
  source = null;
  if (lost === false) lost = true;
  tell();
  const wait = WAITS[Math.min(failures++, WAITS.length - 1)];
  await new Promise(done => setTimeout(done, wait));
  try {
    const answer = await fetch("healthz", {cache: "no-store"});
    if (answer.status === 401) lost = "This page's token is no longer valid: open the address that was printed last.";
    if (!answer.ok) throw new Error(answer.status);
    heard = Date.now();
    connect();
  } catch {
    again();
  }
}

async function look() {
  const n = +slider.value, mine = ++asked;
  main.classList.add("busy");
  try {
    const answer = await fetch(`at/${n}?by=${viewer}`, {cache: "no-store"});
    if (mine !== asked || live) return;
    if (answer.ok) {
      const plain = await answer.json();
      if (mine === asked && !live) show(plain.sections, plain.order, plain.title);
    } else if (answer.status === 409) timer = setTimeout(look, 500); // not available at the moment
  } catch {
    // the status line shows that the connection is lost
  } finally {
    if (mine === asked) main.classList.remove("busy");
  }
}

function goBack() {
  if (live) {
    live = false;
    kept = Object.fromEntries(order.map(([id]) => [id, sent.get(at(id).lastElementChild)]));
  }
  clearTimeout(timer);
  timer = setTimeout(look, 120);
  tell();
}

function goLive() {
  if (live) return;
  live = true;
  if (location.hash.startsWith("#at=")) history.replaceState(null, "", location.pathname);
  asked++;
  clearTimeout(timer);
  main.classList.remove("busy");
  slider.value = slider.max;
  show(kept, order, title);
  tell();
}

// A link to a moment, such as #at=12: the page as it was after event 12.
function follow() {
  const at = /^#at=(\d+)$/.exec(location.hash)?.[1];
  if (at === undefined || at === slider.value) return;
  slider.value = at;
  +at >= +slider.max ? goLive() : goBack();
}

// How long ago each client was heard.
function since() {
  for (const time of document.querySelectorAll("time[data-since]")) {
    time.dataset.clock ??= time.textContent;
    time.textContent = `${ago(Math.max(0, Date.now() / 1000 - time.dataset.since))} ago (${time.dataset.clock})`;
  }
}

slider.addEventListener("input", () => {
  const back = +slider.value < +slider.max;
  history.replaceState(null, "", back ? `#at=${slider.value}` : location.pathname);
  back ? goBack() : goLive();
});
window.addEventListener("hashchange", follow);
at("live").addEventListener("click", goLive);
setInterval(() => {
  if (source && Date.now() - heard > PATIENCE) again();
  else tell();
  since();
}, 1000);
connect();
tell();
since();
follow();

// What pages do beyond htmx: relative times, keys, the panel beside a list, copying, the timeline.

const live = document.getElementById("live");
const peek = document.getElementById("peek");

// ------------------------------------------------------------------ times

const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
let absolute = localStorage.getItem("times") === "utc";

function relative(seconds) {
  const size = Math.abs(seconds);
  if (size < 1) return "now";
  const [unit, name] = units.find(([unit]) => size >= unit);
  const text = `${Math.floor(size / unit)} ${name}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

function showTimes(root = document) {
  const now = Date.now();
  for (const element of root.querySelectorAll("time[datetime]")) {
    const text = absolute ? element.title : relative((now - Date.parse(element.dateTime)) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}

// Deadlines count down to the second: the nearer, the louder.
function showCountdowns() {
  const now = Date.now();
  for (const element of document.querySelectorAll("[data-until]")) {
    const left = Math.ceil((Date.parse(element.dataset.until) - now) / 1000);
    const [minutes, seconds] = [Math.floor(Math.abs(left) / 60), Math.abs(left) % 60];
    const text = minutes >= 60
      ? `${Math.floor(minutes / 60)} h ${minutes % 60} min left`
      : `${minutes}:${String(seconds).padStart(2, "0")} left`;
    element.classList.toggle("is-short", left > 0 && left <= 15);
    element.classList.toggle("is-over", left <= 0);
    element.textContent = left <= 0 ? "overdue" : text;
    element.title = element.dataset.until;
  }
}

const zone = document.getElementById("zone");
function showZone() {
  if (zone) zone.lastElementChild.textContent = absolute ? "UTC" : "ago";
  showTimes();
}
zone?.addEventListener("click", () => {
  absolute = !absolute;
  localStorage.setItem("times", absolute ? "utc" : "ago");
  showZone();
});
setInterval(() => { showTimes(); showCountdowns(); }, 1000);

// ------------------------------------------------------------------ theme

const theme = document.getElementById("theme");
const themes = ["auto", "light", "dark"];
function showTheme() {
  if (theme) theme.lastElementChild.textContent = document.documentElement.dataset.theme ?? "auto";
}
theme?.addEventListener("click", () => {
  const next = themes[(themes.indexOf(theme.lastElementChild.textContent) + 1) % themes.length];
  if (next === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("theme");
  } else {
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
  }
  showTheme();
});

// ------------------------------------------------------------------ menu

// A narrow screen shows a part of the menu: the part with the page that is open.
for (const current of document.querySelectorAll(".menu [aria-current], .tabs [aria-current]"))
  current.parentElement.scrollLeft = current.offsetLeft - current.parentElement.offsetLeft - 40;

// ------------------------------------------------------------------ live updates

// Paused: messages are not shown, but the newest is kept and shown when the page goes on.
const pause = document.getElementById("pause");
let held = null;

function isPaused() {
  return pause?.getAttribute("aria-pressed") === "true";
}

function showLive(text, isLost = false) {
  if (!pause) return;
  pause.classList.toggle("lost", isLost);
  pause.querySelector(".live-text").textContent = isPaused() ? "paused" : text;
}

function togglePause() {
  if (!pause) return;
  pause.setAttribute("aria-pressed", String(!isPaused()));
  showLive("live");
  if (!isPaused() && held !== null) {
    const part = held;
    held = null;
    htmx.swap({ text: part, target: live, swap: "innerMorph", sourceElement: live });
  }
}
pause?.addEventListener("click", togglePause);

document.addEventListener("htmx:sse:before:message", (event) => {
  if (isPaused()) {
    held = event.detail.message.data;
    event.detail.cancelled = true;
    event.preventDefault();
  }
});
document.addEventListener("htmx:sse:after:connection", () => showLive("live"));
document.addEventListener("htmx:sse:error", () => showLive("no connection", true));

// ------------------------------------------------------------------ after each swap

document.addEventListener("htmx:after:swap", () => {
  showTimes();
  showCountdowns();
  showChosen();
  applyZoom();
  if (peek && document.getElementById("peek-body").childElementCount) openPeek();
  for (const notice of document.querySelectorAll("#notices .notice:not([data-shown])")) {
    notice.dataset.shown = "";
    for (const link of notice.querySelectorAll("a")) {
      if (link.pathname === location.pathname) link.remove(); // it leads to where one is
    }
    if (notice.dataset.stays !== undefined) continue; // it says what nobody gets anywhere else
    setTimeout(() => notice.remove(), notice.classList.contains("bad") ? 15000 : 6000);
  }
});
document.addEventListener("htmx:after:request", (event) => {
  const form = event.target.closest?.("form.answer");
  const status = event.detail?.ctx?.response?.status;
  if (form && status === 200) form.reset();
});

// ------------------------------------------------------------------ the panel beside a list

function openPeek() {
  const button = document.querySelector(".peek-button[data-open]");
  if (button) document.getElementById("peek-open").href = button.getAttribute("hx-get");
  peek.hidden = false;
}
function closePeek() {
  if (!peek) return;
  peek.hidden = true;
  document.getElementById("peek-body").replaceChildren();
}
document.addEventListener("click", (event) => {
  const button = event.target.closest(".peek-button");
  if (button) {
    for (const other of document.querySelectorAll("[data-open]")) delete other.dataset.open;
    button.dataset.open = "";
  }
});
document.getElementById("peek-close")?.addEventListener("click", closePeek);

// The panel is no live page: it is read again when the page beside it has changed, twice a second
// at most. A form in which somebody writes stays as it is.
let rereadsPeek = false;
document.addEventListener("htmx:sse:after:message", () => {
  if (rereadsPeek || !peek || peek.hidden) return;
  rereadsPeek = true;
  setTimeout(rereadPeek, 500);
});
async function rereadPeek() {
  rereadsPeek = false;
  const { href } = document.getElementById("peek-open");
  const body = document.getElementById("peek-body");
  if (peek.hidden || isPaused() || !body.querySelector("article.task")) return;
  try {
    const answer = await fetch(href, { headers: { Accept: "text/html", "HX-Request": "true" } });
    const text = await answer.text();
    // Another task may be there by now, or none.
    if (!answer.ok || peek.hidden || document.getElementById("peek-open").href !== href) return;
    htmx.swap({ text, target: body, swap: "innerMorph", sourceElement: body });
  } catch {
    // There is no connection, which the live switch says.
  }
}

// ------------------------------------------------------------------ forms of objectives

// Saved or given up: the panel closes; a form that is a page of its own leads back.
function leaveForm(form) {
  if (form.closest("#peek")) closePeek();
  else location.href = form.dataset.back;
}
document.addEventListener("htmx:after:request", (event) => {
  const form = event.target.closest?.("form.edit-form");
  if (form && event.detail?.ctx?.response?.status === 200) leaveForm(form);
});
document.addEventListener("click", (event) => {
  const close = event.target.closest("#peek [data-close]");
  if (!close) return;
  event.preventDefault();
  leaveForm(close.closest("form"));
});

// ------------------------------------------------------------------ copying

async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Browsers have a clipboard on this machine and by https only; this is the old way.
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

document.addEventListener("click", async (event) => {
  event.target.closest("[data-close-notice]")?.closest(".notice").remove();
  const button = event.target.closest("[data-copy], [data-copy-text]");
  if (!button) return;
  const text = button.dataset.copyText ?? button.closest(".copy").querySelector("pre").textContent;
  await copyText(text);
  const before = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1200);
});

// ------------------------------------------------------------------ files of a message

// A form has no files here: they are JSON in one of its fields, so programs can send the same.
const mostUpload = 11e6;

function readFile(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onerror = () => failed(reader.error);
    reader.onload = () => done({ name: file.name, type: file.type, content: reader.result.split(",")[1] ?? "" });
    reader.readAsDataURL(file);
  });
}
document.addEventListener("change", async (event) => {
  const form = event.target.closest("form[data-upload]");
  if (!form || event.target.type !== "file") return;
  const files = [...event.target.files];
  const send = form.querySelector("button.primary");
  const shown = form.querySelector(".chosen-files");
  const size = files.reduce((sum, file) => sum + file.size, 0);
  if (size > mostUpload) {
    shown.textContent = `These files have ${(size / 1e6).toFixed(1)} MB together; send at most ${mostUpload / 1e6} MB.`;
    form.elements.files.value = "";
    return;
  }
  send.disabled = true;
  const read = await Promise.all(files.map(readFile));
  form.elements.files.value = read.length ? JSON.stringify(read) : "";
  shown.textContent = files.map((file) => file.name).join(", ");
  send.disabled = false;
});
document.addEventListener("reset", (event) => {
  const form = event.target;
  if (!form.matches("form[data-upload]")) return;
  // A reset does not change fields that are hidden.
  form.elements.files.value = "";
  form.querySelector(".chosen-files").textContent = "";
});

// ------------------------------------------------------------------ keys

let chosen = null;
let isGoing = false;
const places = { n: "/dashboard", t: "/dashboard/tasks", c: "/dashboard/calls", o: "/dashboard/objectives", a: "/dashboard/agents" };

function showChosen() {
  for (const row of document.querySelectorAll("[data-row].chosen")) row.classList.remove("chosen");
  if (chosen) document.getElementById(chosen)?.classList.add("chosen");
}

function move(step) {
  const rows = [...document.querySelectorAll("#live [data-row]")];
  if (!rows.length) return;
  const index = rows.findIndex((row) => row.id === chosen);
  const next = rows[Math.min(Math.max(index + step, 0), rows.length - 1)];
  chosen = next.id;
  showChosen();
  next.scrollIntoView({ block: "nearest" });
}

const help = document.getElementById("help");
const keys = {
  "/": () => document.getElementById("q")?.focus(),
  j: () => move(1),
  k: () => move(-1),
  p: togglePause,
  "?": () => help?.showModal(),
  o: () => document.getElementById(chosen)?.querySelector(".peek-button")?.click(),
  Enter: () => document.getElementById(chosen)?.querySelector(".row-link")?.click(),
  g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1000); },
};
document.getElementById("help-open")?.addEventListener("click", () => help.showModal());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closePeek();
  if (event.ctrlKey || event.metaKey || event.altKey || help?.open) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  // A button or a link that has the focus takes Enter, and no other key: one in a dialog that was
  // closed keeps the focus until the next frame.
  if (event.key === "Enter" && event.target.closest("button, a, summary")) return;
  if (isGoing && places[event.key]) {
    location.href = places[event.key];
    return;
  }
  const act = keys[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

// ------------------------------------------------------------------ the timeline: drag to zoom

let zoom = null;
let dragFrom = null;

function applyZoom() {
  for (const bar of document.querySelectorAll("[data-timeline] .bar")) {
    bar.setAttribute("viewBox", zoom ? `${zoom[0]} 0 ${zoom[1] - zoom[0]} 14` : "0 0 1000 14");
  }
  const [from, to] = zoom ?? [0, 1000];
  for (const bars of document.querySelectorAll("[data-timeline]")) {
    const whole = Number(bars.dataset.seconds);
    const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => {
      const mark = document.createElement("span");
      mark.textContent = clock((whole * (from + part * (to - from))) / 1000);
      return mark;
    });
    bars.querySelector("[data-ticks]")?.replaceChildren(...marks);
    const all = bars.querySelector("[data-zoom-out]");
    if (all) all.hidden = zoom === null;
  }
}
function clock(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
function placeOf(event) {
  const bar = document.querySelector("[data-timeline] .bar");
  const box = bar.getBoundingClientRect();
  const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  const [from, to] = zoom ?? [0, 1000];
  return from + part * (to - from);
}
document.addEventListener("pointerdown", (event) => {
  if (event.target.closest("[data-timeline] .bar")) dragFrom = placeOf(event);
});
document.addEventListener("pointerup", (event) => {
  if (dragFrom === null) return;
  const to = placeOf(event);
  const [start, end] = [Math.min(dragFrom, to), Math.max(dragFrom, to)];
  dragFrom = null;
  if (end - start > 2) {
    zoom = [start, end];
    applyZoom();
  }
});
document.addEventListener("dblclick", (event) => {
  if (event.target.closest("[data-timeline]")) showWhole();
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-zoom-out]")) showWhole();
});
function showWhole() {
  zoom = null;
  applyZoom();
}
applyZoom();

showTheme();
showZone();
showCountdowns();

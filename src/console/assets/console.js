// The console's only script. Every page works without it; with it pages stay up to date, events are
// followed, and the keyboard has short ways.

const FRAGMENT = { headers: { "x-saltern-fragment": "1" }, credentials: "same-origin" };
const live = document.getElementById("live");

/** The part of a page that is called live, as nodes; nothing when the session has ended. */
async function fragment(path) {
  const response = await fetch(path, FRAGMENT);
  if (response.status === 401) {
    location.assign("/console/login?next=" + encodeURIComponent(location.pathname + location.search));
    return null;
  }
  const text = await response.text();
  if (!(response.headers.get("content-type") || "").startsWith("text/html")) return null;
  const template = document.createElement("template");
  template.innerHTML = text;
  return template.content;
}

// ---- Swapping a fragment in, so that focus, scroll, open details and ticks stay ----

const keyOf = (node) =>
  node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") || node.id || null : null;

/** Whether rows must stay where they are, because somebody points at them or has the focus there. */
const isHeld = (rows) => rows.matches(":hover") || rows.contains(document.activeElement);

/** Attributes that are of this window: what is open, and what was loaded into it. */
const OWN = ["open", "data-loaded", "data-keep"];

function syncAttributes(from, to) {
  for (const { name } of [...from.attributes]) {
    if (!OWN.includes(name) && !to.hasAttribute(name)) from.removeAttribute(name);
  }
  for (const { name, value } of [...to.attributes]) {
    const isNew = from.getAttribute(name) !== value;
    if (isNew && name !== "open" && name !== "checked" && name !== "value") from.setAttribute(name, value);
    else if (isNew && name === "value" && from.nodeName === "PROGRESS") from.setAttribute(name, value);
    else if (isNew && name === "value" && from.type === "hidden") from.value = value;
  }
}

function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  syncAttributes(from, to);
  if (!from.hasAttribute("data-keep")) morphChildren(from, to);
}

function morphChildren(from, to) {
  const known = new Map();
  for (const child of from.childNodes) if (keyOf(child)) known.set(keyOf(child), child);
  if (from.hasAttribute("data-rows") && isHeld(from)) {
    let waiting = 0;
    for (const child of to.children) {
      const own = known.get(keyOf(child));
      if (own) morph(own, child);
      else waiting += 1;
    }
    held.note(from, waiting);
    return;
  }
  const isList = from.hasAttribute("data-rows") && from.childElementCount > 0;
  // Space between elements means nothing, but in a text that is shown as it is.
  const isText = from.closest("pre") !== null;
  const isBlank = (node) => !isText && node.nodeType === Node.TEXT_NODE && !node.nodeValue.trim();
  const wanted = new Set([...to.children].map(keyOf));
  let place = from.firstChild;
  // A node that is moved loses pointer and focus: rather, what stands before it and is not wanted goes.
  const settle = (own) => {
    while (place && place !== own && (isBlank(place) || (own && !(keyOf(place) && wanted.has(keyOf(place)))))) {
      const next = place.nextSibling;
      if (!isBlank(place)) place.remove();
      place = next;
    }
  };
  for (const child of [...to.childNodes]) {
    if (isBlank(child)) continue;
    const key = keyOf(child);
    settle(key ? known.get(key) : null);
    let own = key ? known.get(key) : place;
    if (!key && own && (keyOf(own) || own.nodeName !== child.nodeName)) own = null;
    if (own && own.nodeName === child.nodeName) {
      if (own !== place) from.insertBefore(own, place);
      else place = place.nextSibling;
      morph(own, child);
      known.delete(key);
    } else {
      from.insertBefore(child, place);
      if (isList && child.nodeType === Node.ELEMENT_NODE) child.classList.add("fresh");
    }
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

/** Changes that wait until the rows are let go. */
const held = {
  count: 0,
  note(rows, waiting) {
    this.count = waiting;
    showState(waiting ? `live, ${waiting} new ${waiting === 1 ? "row waits" : "rows wait"}` : "live", true);
    if (waiting) {
      rows.addEventListener("pointerleave", refreshSoon, { once: true });
      rows.addEventListener("focusout", refreshSoon, { once: true });
    }
  },
};

// ---- Keeping a page up to date ----

const stateOf = document.getElementById("live-state");
function showState(text, isOn) {
  if (!stateOf) return;
  if (stateOf.textContent !== text) stateOf.textContent = text;
  stateOf.toggleAttribute("data-on", isOn);
  stateOf.toggleAttribute("data-off", !isOn);
}

let isRefreshing = false;
let isDue = false;
async function refresh() {
  if (isRefreshing) {
    isDue = true;
    return;
  }
  isRefreshing = true;
  try {
    const content = await fragment(location.pathname + location.search);
    if (content) {
      const wanted = document.createElement("div");
      wanted.append(content);
      showState("live", true);
      morphChildren(live, wanted);
      ages();
      // A row that was opened before its minion returned.
      for (const row of live.querySelectorAll("details[open][data-load]")) load(row);
    }
  } catch {
    showState("no connection to the master", false);
  } finally {
    isRefreshing = false;
  }
  if (isDue) {
    isDue = false;
    setTimeout(refresh, 300);
  }
}
const refreshSoon = () => setTimeout(refresh, 50);

function follow() {
  let source = null;
  const path = live.dataset.live;
  const open = () => {
    if (source || document.hidden) return;
    source = new EventSource(path);
    let wasOpen = false;
    source.addEventListener("open", () => {
      showState("live", true);
      // What happened while there was no connection.
      if (wasOpen) refresh();
      wasOpen = true;
    });
    source.addEventListener("change", refresh);
    source.addEventListener("closed", (event) => {
      showState(JSON.parse(event.data), false);
      if (JSON.parse(event.data) === "session ended") refresh();
    });
    source.addEventListener("error", () => {
      showState("reconnecting …", false);
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(open, 2000);
        // Refused: the session may have ended.
        refresh();
      }
    });
  };
  // A browser has few connections to one host: a hidden page needs none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) {
      source.close();
      source = null;
    } else if (!document.hidden) {
      open();
      refresh();
    }
  });
  open();
  // Where the rules hide the events, the page is still no older than this.
  setInterval(() => document.hidden || refresh(), 15000);
}
if (live && live.dataset.live) follow();

/** How long ago each moment was, as the server writes it. */
function ages() {
  const units = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
  for (const time of document.querySelectorAll("time[datetime]")) {
    const seconds = Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000);
    const unit = units.find(([size]) => seconds >= size);
    let text = seconds < 1 ? "now" : `${seconds} s ago`;
    if (unit) {
      const whole = Math.floor(seconds / unit[0]);
      const rest = Math.floor((seconds % unit[0]) / unit[2]);
      text = rest === 0 || whole >= 10 ? `${whole} ${unit[1]} ago` : `${whole} ${unit[1]} ${rest} ${unit[3]} ago`;
    }
    if (time.textContent !== text) time.textContent = text;
  }
}
setInterval(ages, 5000);

// ---- Returns that are fetched when their row is opened ----

async function load(row) {
  if (!row.open || !row.dataset.load || row.dataset.loaded) return;
  row.dataset.loaded = "yes";
  const body = row.querySelector(".body");
  try {
    const content = await fragment(row.dataset.load);
    if (content) {
      body.replaceChildren(content);
      body.setAttribute("data-keep", "");
    }
  } catch {
    delete row.dataset.loaded;
  }
}
document.addEventListener("toggle", (event) => {
  if (event.target instanceof HTMLDetailsElement) load(event.target);
}, true);

// ---- Events ----

function followEvents(table) {
  const MAX_ROWS = 500;
  const rows = document.getElementById("event-rows");
  const pause = document.getElementById("pause");
  const state = document.getElementById("events-state");
  const show = document.getElementById("show-held");
  let source = null;
  let last = new URL(table.dataset.events, location.href).searchParams.get("after");
  let isPaused = false;
  let missed = 0;

  const say = (text, isOn) => {
    state.textContent = text;
    state.toggleAttribute("data-on", isOn);
    state.toggleAttribute("data-off", !isOn);
  };
  const waiting = () => `${missed} ${missed === 1 ? "event" : "events"} since the pause`;
  const open = () => {
    const path = new URL(table.dataset.events, location.href);
    if (last) path.searchParams.set("after", last);
    source = new EventSource(path);
    source.addEventListener("open", () => say(isPaused ? waiting() : "live", !isPaused));
    source.addEventListener("error", () => {
      say("reconnecting …", false);
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(open, 2000);
      // Refused: the session may have ended, which leads to the log-in.
      fragment(location.pathname + location.search).catch(() => {});
    });
    source.addEventListener("closed", (event) => {
      say(JSON.parse(event.data), false);
      if (JSON.parse(event.data) === "session ended") fragment(location.pathname + location.search);
    });
    source.addEventListener("gap", (event) => {
      const count = JSON.parse(event.data);
      const row = document.createElement("tr");
      const cell = row.insertCell();
      cell.colSpan = 3;
      cell.className = "muted held";
      cell.textContent = count === null ? "Events are missing here: the history is another one." : `${count} events are missing here: they are not kept any more.`;
      rows.prepend(row);
    });
    source.addEventListener("rows", (event) => {
      const { count, html } = JSON.parse(event.data);
      if (isPaused) {
        // Counted only: going on reads them again from the last one that was shown.
        missed += count;
        say(waiting(), false);
        return;
      }
      last = event.lastEventId;
      const template = document.createElement("template");
      template.innerHTML = html;
      for (const row of template.content.children) row.classList.add("fresh");
      const scrolled = window.scrollY;
      const height = document.body.scrollHeight;
      rows.prepend(template.content);
      // Whoever has scrolled down keeps the rows that he looks at.
      if (scrolled > 200) window.scrollTo(0, scrolled + document.body.scrollHeight - height);
      while (rows.childElementCount > MAX_ROWS) rows.lastElementChild.remove();
    });
  };
  const toggle = () => {
    isPaused = !isPaused;
    missed = 0;
    pause.textContent = isPaused ? "Go on" : "Pause";
    pause.setAttribute("aria-pressed", String(isPaused));
    if (isPaused) {
      say(waiting(), false);
      return;
    }
    source.close();
    open();
  };
  pause.hidden = false;
  pause.addEventListener("click", toggle);
  show.hidden = true;
  addEventListener("pagehide", () => source && source.close());
  open();
  return toggle;
}
const eventsTable = document.querySelector("[data-events]");
const togglePause = eventsTable ? followEvents(eventsTable) : null;

// ---- Forms ----

/** Which minions a target means, while it is typed. */
for (const form of document.querySelectorAll("form[data-preview]")) {
  const names = (form.dataset.preview || "target present grains").split(" ");
  let timer = 0;
  let latest = 0;
  form.addEventListener("input", (event) => {
    if (!names.includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const asked = ++latest;
      const path = new URL(form.action);
      for (const name of names) {
        const value = form.elements[name] && form.elements[name].value;
        if (value) path.searchParams.set(name, value);
      }
      try {
        const content = await fragment(path.pathname + path.search);
        if (content && asked === latest) {
          const wanted = document.createElement("div");
          wanted.append(content);
          morphChildren(live, wanted);
          if (form.method === "get") history.replaceState(null, "", path);
        }
      } catch {
        // The form itself still works.
      }
    }, 250);
  });
}

document.addEventListener("change", (event) => {
  const box = event.target;
  if (!(box instanceof HTMLInputElement) || box.type !== "checkbox") return;
  const table = box.closest("table");
  if (table && box.hasAttribute("data-all")) {
    for (const one of table.querySelectorAll("tbody input[type=checkbox]")) one.checked = box.checked;
  }
  const form = box.closest("form");
  const count = form ? form.querySelectorAll("tbody input:checked").length : 0;
  const note = form && form.querySelector("[data-ticked]");
  if (note) note.textContent = count ? `${count} ticked:` : "Tick keys, then:";
});

// A filter without empty parameters makes a link that can be read.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "get") return;
  for (const field of form.elements) if (field.name && !field.value) field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll(".filters :disabled")) field.disabled = false;
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) {
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    return;
  }
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
  } catch {
    // Without TLS a browser has no clipboard of that kind.
    getSelection().selectAllChildren(button.previousElementSibling);
    document.execCommand("copy");
    getSelection().removeAllRanges();
  }
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
});

// ---- Keyboard ----

const dialog = document.getElementById("shortcuts");
let isGo = false;

function step(by) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.checkVisibility());
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[at === -1 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))];
  const target = row && (row.querySelector("summary") || row.querySelector("a") || row.querySelector("input"));
  if (target) target.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target.closest && event.target.closest("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    for (const menu of document.querySelectorAll(".menu[open]")) menu.open = false;
    return;
  }
  if (isTyping) return;
  if (isGo) {
    isGo = false;
    const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  const search = document.querySelector("[data-search]");
  if (event.key === "g") {
    isGo = true;
    setTimeout(() => (isGo = false), 1500);
  } else if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
    search.select();
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "p" && togglePause) togglePause();
  else if (event.key === "?" && dialog) dialog.showModal();
});

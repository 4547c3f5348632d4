/* Keeps a page live: times, filters, parts that are fetched again, and the stream of events.

   In: the page, and the stream at <body data-live>. Out: a page that shows what is true now, or says since when it does
   not know. Other scripts hear of new content by the event "fairlead:content" and of a switched clock by
   "fairlead:times" (both on document), and use window.fairlead. */
"use strict";

(() => {
  const QUIET_MS = 15000; // without a byte of the stream for so long, the connection counts as lost (keep-alives: 5 s)
  const AGAIN_MS = 2000; // a part of the page is fetched at most once in this time
  const HIDDEN_MS = 30000; // a page that nobody sees for so long lets its stream go: browsers allow six per server
  const NEW_MS = 6000; // how long a new row stands out
  const body = document.body;
  const stored = (() => {
    try {
      return window.localStorage;
    } catch {
      return { getItem: () => null, setItem: () => undefined }; // storage is forbidden: the choice lasts for this page
    }
  })();

  // --- times ---------------------------------------------------------------------------------------------------------

  const port = body.dataset.zone;
  let inPort = Boolean(port) && stored.getItem("fairlead-times") === "port";
  const formats = new Map();

  function format(zone, seconds) {
    const key = `${zone} ${seconds}`;
    if (!formats.has(key)) {
      const parts = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit" };
      if (seconds) parts.second = "2-digit";
      // Swedish writes 2026-03-01 12:00:00.
      formats.set(key, new Intl.DateTimeFormat("sv-SE", { ...parts, timeZone: zone, hourCycle: "h23" }));
    }
    return formats.get(key);
  }

  const zone = () => (inPort ? port : "UTC");
  const zoneName = () => (inPort ? body.dataset.zoneName : "UTC");

  /* The text of a time (a Date, or ISO 8601 text) as this page shows times now. */
  function timeText(value, seconds = false) {
    const date = new Date(value);
    return Number.isNaN(date.getTime()) ? "–" : format(zone(), seconds).format(date).replace(",", "");
  }

  const clockText = (date) => `${date.toISOString().slice(11, 16)} UTC`;

  function showTimes(root) {
    for (const each of root.querySelectorAll("time[datetime]")) {
      each.textContent = timeText(each.dateTime, "seconds" in each.dataset);
    }
    for (const each of root.querySelectorAll(".zone")) each.textContent = zoneName();
  }

  function makeClock() {
    const clock = document.querySelector(".clock");
    if (!clock || !port) return;
    const choices = [
      [false, "UTC"],
      [true, body.dataset.zoneName],
    ];
    const buttons = choices.map(([choice, name]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.title = choice ? `Times of ${name} (${port})` : "Coordinated Universal Time";
      button.addEventListener("click", () => {
        inPort = choice;
        stored.setItem("fairlead-times", choice ? "port" : "utc");
        press();
        showTimes(document);
        document.dispatchEvent(new Event("fairlead:times"));
      });
      return button;
    });
    const press = () => buttons.forEach((each, at) => each.setAttribute("aria-pressed", String(choices[at][0] === inPort)));
    press();
    clock.replaceChildren(...buttons);
  }

  // --- filters -------------------------------------------------------------------------------------------------------

  const rowsOf = (table) => [...table.querySelectorAll("tbody > tr")];

  /* Hide the rows of a table that its filters leave out. The row with class "empty" shows where no other does. */
  function filter(table) {
    const named = `[data-filter="${CSS.escape(table.id)}"]`;
    const by = `[data-filter-by="${CSS.escape(table.id)}"]`;
    const words = [...document.querySelectorAll(named)].flatMap((each) => each.value.toLowerCase().split(/\s+/));
    const choices = [...document.querySelectorAll(by)].filter((each) => each.value);
    let shown = 0;
    let all = 0;
    for (const row of rowsOf(table)) {
      if (row.classList.contains("empty")) continue;
      const text = row.textContent.toLowerCase();
      const wanted = (each) => (row.dataset[each.dataset.column] ?? "").split(" ").includes(each.value);
      row.hidden = !(words.every((word) => text.includes(word)) && choices.every(wanted));
      all += 1;
      shown += row.hidden ? 0 : 1;
    }
    for (const row of table.querySelectorAll("tr.empty")) row.hidden = shown > 0;
    for (const each of document.querySelectorAll(`[data-count="${CSS.escape(table.id)}"]`)) {
      each.textContent = shown === all ? `${all}` : `${shown} of ${all}`;
    }
  }

  function filterAll() {
    const ids = new Set();
    for (const each of document.querySelectorAll("[data-filter], [data-filter-by], [data-count]")) {
      ids.add(each.dataset.filter || each.dataset.filterBy || each.dataset.count);
    }
    for (const id of ids) {
      const table = document.getElementById(id);
      if (table) filter(table);
    }
  }

  function onFilter(event) {
    const id = event.target.dataset?.filter || event.target.dataset?.filterBy;
    const table = id && document.getElementById(id);
    if (table) filter(table);
  }

  /* Boxes that scroll are reached by the keyboard, even with nothing inside to press. */
  function reachScrolling() {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }

  /* Show a panel with a drawing once there is something to draw (data-with), and the words instead of it until then. */
  function showDrawings() {
    for (const each of document.querySelectorAll("[data-with]")) each.hidden = !document.getElementById(each.dataset.with);
    for (const each of document.querySelectorAll("[data-without]")) each.hidden = !!document.getElementById(each.dataset.without);
  }

  /* Alerts come and go while people look: the words below them are there only while no alert is. */
  function showNoAlerts() {
    const words = document.getElementById("no-alerts");
    if (!words) return;
    words.hidden = document.querySelector("#alerts > tr") !== null;
    if (words.hidden) words.textContent = "";
    else if (!words.textContent.trim()) words.textContent = "No alert is open.";
  }

  /* After the content of an element has changed. */
  function settle(root) {
    showTimes(root);
    showDrawings();
    showNoAlerts();
    filterAll();
    reachScrolling();
    document.dispatchEvent(new CustomEvent("fairlead:content", { detail: root }));
  }

  // --- fragments -----------------------------------------------------------------------------------------------------

  function announce(text) {
    const line = document.createElement("p");
    line.textContent = text;
    const announcer = document.getElementById("announcer");
    announcer.append(line);
    while (announcer.children.length > 20) announcer.firstChild.remove();
  }

  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html.trim();
    return template.content.firstElementChild;
  }

  /* Insert, replace or remove one element: {target, id, html}. While the part around it is being fetched, remember that. */
  function fragment(told) {
    const around = document.getElementById(told.target) ?? document.getElementById(told.id);
    const state = refreshing.get(around?.closest("[data-refresh]"));
    if (state?.running) state.told.push(told);
    apply(told, true);
  }

  function apply({ target, id, html }, isNew) {
    const old = document.getElementById(id);
    const made = html === null || html === undefined ? null : parsed(html);
    if (!made) {
      const parent = old?.parentElement;
      old?.remove();
      if (parent) settle(parent);
      return;
    }
    if (old) {
      const kept = keep(old);
      old.replaceWith(made);
      kept.fields(made);
      settle(made.parentElement);
      kept.view(made);
    } else {
      let place = document.getElementById(target);
      if (!place) return;
      if (place instanceof HTMLTableElement) place = place.tBodies[0] ?? place.createTBody();
      place.prepend(made);
      made.classList.add("new");
      setTimeout(() => made.classList.remove("new"), NEW_MS);
      if (isNew && made.dataset.announce) announce(made.dataset.announce);
      settle(made.parentElement);
    }
  }

  // --- parts that are fetched again ----------------------------------------------------------------------------------

  /* What tells an element from its like after its neighbours were made anew. */
  function nameOf(element) {
    if (element.id) return `#${CSS.escape(element.id)}`;
    for (const name of ["data-filter", "data-filter-by", "name", "href", "data-key"]) {
      const value = element.getAttribute(name);
      const column = element.dataset.column ? `[data-column="${CSS.escape(element.dataset.column)}"]` : "";
      if (value) return `${element.localName}[${name}="${CSS.escape(value)}"]${column}`;
    }
    return null;
  }

  /* Where an element stands, as a selector below root: its own name, within the nearest element with an id. */
  function placeOf(element, root) {
    const own = nameOf(element) ?? element.localName;
    const around = own.startsWith("#") ? null : element.parentElement?.closest("[id]");
    return around && root.contains(around) && around !== root ? `#${CSS.escape(around.id)} ${own}` : own;
  }

  /* Remember focus, what was typed, what is open and how far boxes are scrolled in an element; return what
     puts it back: fields() before filters hide rows, view() after. */
  function keep(root) {
    const inside = (selector) => [...root.querySelectorAll(selector)];
    const typed = inside("input, select, textarea")
      .filter((each) => nameOf(each) && each.type !== "hidden" && changed(each))
      .map((each) => [placeOf(each, root), each.type === "checkbox" ? each.checked : each.value]);
    const open = inside("details").map((each, at) => [at, each.open]);
    const boxes = inside(".scroll").map((each, at) => [at, each.scrollLeft, each.scrollTop]);
    const [x, y] = [window.scrollX, window.scrollY];
    const active = root.contains(document.activeElement) ? document.activeElement : null;
    const focus = active && active !== root ? placeOf(active, root) : null;
    const selection = active?.matches("input[type=search], input[type=text], input:not([type]), textarea")
      ? [active.selectionStart, active.selectionEnd]
      : null;
    const fields = (now) => {
      for (const [place, value] of typed) {
        const field = now.querySelector(place);
        if (field?.type === "checkbox") field.checked = value;
        else if (field) field.value = value;
      }
    };
    const view = (now) => {
      const details = now.querySelectorAll("details");
      for (const [at, was] of open) if (details[at]) details[at].open = was;
      const scrolled = now.querySelectorAll(".scroll");
      for (const [at, left, top] of boxes) if (scrolled[at]) scrolled[at].scrollTo(left, top);
      const next = focus && (now.matches(focus) ? now : now.querySelector(focus));
      next?.focus({ preventScroll: true });
      if (next && selection) next.setSelectionRange(...selection);
      if (window.scrollX !== x || window.scrollY !== y) window.scrollTo({ left: x, top: y, behavior: "instant" });
    };
    return { fields, view };
  }

  function changed(field) {
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (field instanceof HTMLSelectElement) return [...field.options].some((each) => each.selected !== each.defaultSelected);
    return field.value !== field.defaultValue;
  }

  const refreshing = new WeakMap(); // element -> {last, timer, running, told: fragments since the request}

  function refresh(element) {
    const state = refreshing.get(element) ?? { last: -Infinity, timer: 0, running: false, told: [] };
    refreshing.set(element, state);
    if (state.timer) return;
    const wait = Math.max(0, state.last + AGAIN_MS - performance.now());
    state.timer = setTimeout(async () => {
      state.timer = 0;
      if (!element.isConnected) return;
      if (state.running) {
        refresh(element); // once more, when this one has ended
        return;
      }
      state.last = performance.now();
      state.running = true;
      state.told = [];
      try {
        await replaceContent(element, state);
        stale.delete(element);
      } catch {
        if (!stale.has(element)) stale.set(element, new Date());
      } finally {
        state.running = false;
        showBanner();
      }
    }, wait);
  }

  /* Fetch an element's content. The answer may be older than fragments that came meanwhile: these are applied once more. */
  async function replaceContent(element, state) {
    const answer = await fetch(element.dataset.refresh, {
      headers: { Accept: "text/html", "X-Requested-With": "fetch" },
      redirect: "manual", // a redirect leads to the sign-in page, which does not belong here
    });
    if (answer.type === "opaqueredirect" || answer.status === 401) signedOut = true;
    if (!answer.ok) throw new Error(`${element.dataset.refresh}: ${answer.status}`);
    const template = document.createElement("template");
    template.innerHTML = await answer.text();
    const kept = keep(element);
    element.replaceChildren(template.content);
    for (const each of state.told) apply(each, false);
    kept.fields(element);
    settle(element);
    kept.view(element);
  }

  function refreshAll(what) {
    for (const each of document.querySelectorAll("[data-refresh]")) {
      if (!what || (each.dataset.on ?? "").split(" ").includes(what)) refresh(each);
    }
  }

  // --- the banner ----------------------------------------------------------------------------------------------------

  const stale = new Map(); // element -> since when it could not be fetched
  let lostSince = null;
  let signedOut = false;

  function showBanner() {
    const banner = document.getElementById("connection");
    for (const each of stale.keys()) if (!each.isConnected) stale.delete(each);
    let text = "";
    if (signedOut) text = "You are signed out. What you see may be old. ";
    else if (lostSince) text = `No connection to the board since ${clockText(lostSince)}. What you see may be old.`;
    else if (stale.size) {
      const since = new Date(Math.min(...stale.values()));
      text = `A part of this page could not be renewed since ${clockText(since)}. What you see may be old.`;
    }
    if (banner.dataset.text !== text) {
      banner.dataset.text = text;
      banner.textContent = text;
      if (signedOut) {
        const link = document.createElement("a");
        link.href = window.location.href;
        link.textContent = "Sign in again";
        banner.append(link);
      }
    }
    banner.hidden = !text;
    const liveness = document.getElementById("liveness");
    if (liveness) {
      liveness.dataset.state = text ? "lost" : connected ? "live" : "wait";
      liveness.textContent = { lost: "not live", live: "live", wait: "not live yet" }[liveness.dataset.state];
    }
  }

  // --- the stream ----------------------------------------------------------------------------------------------------

  // EventSource hides comment lines, and those are the keep-alives: so the stream is read by fetch.
  let connected = false;
  let everConnected = false;
  let abort = null;
  let lastByte = new Date(); // of the stream; at first: of the page
  let lastId = "";
  let attempts = 0;
  let retry = 0;

  const handlers = {
    fragment,
    position: ({ id, ...where }) => {
      for (const each of document.querySelectorAll("[data-map]")) window.fairleadMap?.(each.dataset.map)?.moveShip(id, where);
    },
    changed: ({ what }) => refreshAll(what),
  };

  function dispatch(lines) {
    let name = "message";
    const data = [];
    for (const line of lines) {
      const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (field === "event") name = value;
      else if (field === "data") data.push(value);
      else if (field === "id") lastId = value;
    }
    if (!data.length || !Object.hasOwn(handlers, name)) return;
    try {
      handlers[name](JSON.parse(data.join("\n")));
    } catch (error) {
      console.error(`event ${name}: ${error}`); // one bad event does not end the others
    }
  }

  async function read(stream) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let lines = [];
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const parts = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = parts.pop();
      for (const line of parts) {
        if (line) {
          if (!line.startsWith(":")) lines.push(line);
        } else {
          dispatch(lines);
          lines = [];
        }
      }
    }
  }

  function heard() {
    lastByte = new Date();
    if (connected) return;
    const again = everConnected || lostSince !== null;
    connected = everConnected = true;
    lostSince = null;
    attempts = 0;
    showBanner();
    refreshAll(again ? "" : "alerts"); // at first: alerts since the page was made
  }

  function lost() {
    connected = false;
    lostSince ??= lastByte;
    showBanner();
  }

  async function connect() {
    clearTimeout(retry);
    if (abort || signedOut) return;
    const mine = (abort = new AbortController());
    const headers = { Accept: "text/event-stream" };
    if (lastId) headers["Last-Event-ID"] = lastId;
    const begun = new Date();
    const silence = setInterval(() => {
      if (new Date() - Math.max(begun, lastByte) > QUIET_MS) mine.abort();
    }, 1000);
    try {
      const answer = await fetch(body.dataset.live, { headers, cache: "no-store", redirect: "manual", signal: mine.signal });
      if (answer.type === "opaqueredirect" || answer.status === 401) signedOut = true;
      if (!answer.ok) throw new Error(`${body.dataset.live}: ${answer.status}`);
      heard();
      await read(answer.body);
    } catch {
      // The banner says it; the browser's own log has the cause.
    }
    clearInterval(silence);
    if (abort !== mine) return; // let go on purpose
    abort = null;
    lost();
    retry = setTimeout(connect, Math.min(10000, 1000 * 2 ** Math.min(attempts++, 4)) * (0.75 + Math.random() / 2));
  }

  function letGo() {
    clearTimeout(retry);
    const mine = abort;
    abort = null;
    connected = false;
    mine?.abort();
  }

  function follow() {
    let hidden = 0;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(hidden);
      if (document.hidden) hidden = setTimeout(letGo, HIDDEN_MS);
      else connect();
    });
    window.addEventListener("pagehide", letGo);
    window.addEventListener("pageshow", (event) => event.persisted && connect());
    window.addEventListener("online", connect);
    connect();
  }

  window.fairlead = { timeText, zone, zoneName };
  makeClock();
  showTimes(document);
  filterAll();
  reachScrolling();
  window.addEventListener("resize", reachScrolling);
  document.addEventListener("input", onFilter);
  document.addEventListener("change", onFilter);
  if (body.dataset.live) follow();
})();

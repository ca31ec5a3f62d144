// Keep the page current: after a change event, fetch the page again and replace each changed element that is marked data-live.
// Opened details, form input and focus are kept.
"use strict";
(() => {
  const SHORTEST_MS = 1000;
  const lost = document.getElementById("lost");
  let wanted = false, busy = false, last = 0;

  const rows = (part) => [...part.querySelectorAll("tr[id], .squares li[id]")];

  function take(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    const texts = new Map(rows(old).map((row) => [row.id, row.textContent]));
    const open = [...old.querySelectorAll("details[open][id]")].map((details) => details.id);
    const focused = old.contains(document.activeElement) ? document.activeElement.id : null;
    const inner = focused === old.id;
    const scrolled = old.scrollLeft;
    old.replaceChildren(...fresh.childNodes);
    old.scrollLeft = scrolled;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (texts.size) {
      for (const row of rows(old)) {
        const isNew = row.matches("li") ? texts.get(row.id) !== row.textContent : !texts.has(row.id);
        if (isNew) row.classList.add("fresh");
      }
    }
    if (focused && !inner) document.getElementById(focused)?.focus();
  }

  async function refresh() {
    if (busy || !wanted || document.hidden) return;
    busy = true; wanted = false; last = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const fresh of page.querySelectorAll("[data-live][id]")) {
        const old = document.getElementById(fresh.id);
        if (old) take(old, fresh);
      }
      document.querySelectorAll("form[data-fills]").forEach(fill);
      document.dispatchEvent(new Event("changed"));
    } catch {
      wanted = true;
    }
    busy = false;
    later();
  }

  function later() {
    if (wanted) setTimeout(refresh, Math.max(0, last + SHORTEST_MS - Date.now()));
  }

  // The command line of a form, with the values that were entered so far.
  const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\"'\"'") + "'");

  function fill(form) {
    const shown = document.querySelector(`#${form.dataset.fills} [data-template]`);
    let parts = shown.dataset.template.split(/ (?=--)/);
    for (const field of form.querySelectorAll("[data-word]")) {
      const word = new RegExp(`\\b${field.dataset.word}\\b`);
      if (field.value) parts = parts.map((part) => part.replace(word, () => quoted(field.value)));
      else if (field.matches("select")) parts = parts.filter((part) => !word.test(part));
    }
    shown.replaceChildren(...parts.flatMap((part) => {
      const span = document.createElement("span");
      span.textContent = part;
      return [span, " "];
    }));
  }

  for (const form of document.querySelectorAll("form[data-fills]")) {
    form.addEventListener("input", () => fill(form));
    fill(form);
  }
  for (const form of document.querySelectorAll("form[method=post]")) {
    form.addEventListener("submit", () => setTimeout(() => form.querySelectorAll("button").forEach((b) => (b.disabled = true))));
  }

  const source = new EventSource("/events");
  source.addEventListener("changed", () => { lost.hidden = true; wanted = true; later(); });
  source.addEventListener("error", () => { lost.hidden = false; });
  document.addEventListener("visibilitychange", refresh);
})();

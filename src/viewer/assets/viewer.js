// Comfort on top of pages that work without it: live rows, keys, a look into a cell, search, copies.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const isTyping = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;

const fetchPart = async (address) => {
  const response = await fetch(address, { credentials: "same-origin" });
  return { ok: response.ok, html: await response.text() };
};

const parse = (html) => document.createRange().createContextualFragment(html);

// Live rows: the table is asked for again while somebody looks, and exchanged if it differs.
const follow = (sign) => {
  const rows = $("#rows");
  let last = rows.innerHTML;
  const seen = document.createElement("div");
  sign.hidden = false;
  const tell = (trouble) => {
    sign.classList.toggle("off", Boolean(trouble));
    sign.lastElementChild.textContent = trouble ? `not live: ${trouble}` : "live";
  };
  const refresh = async () => {
    if (document.hidden || rows.contains(document.activeElement)) return;
    try {
      const { ok, html } = await fetchPart(sign.dataset.live);
      tell(ok ? "" : "the store does not answer");
      if (!ok) return;
      seen.replaceChildren(parse(html));
      if (seen.innerHTML === last) return;
      last = seen.innerHTML;
      rows.replaceChildren(...seen.childNodes);
    } catch {
      tell("the viewer does not answer");
    }
  };
  setInterval(refresh, 5000);
};

// A look into a cell, beside the matrix. Which one stands behind the # of the address, so that it can be handed on, and
// Back closes it.
const peek = {
  panel: null,
  from: null,
  wanted: "",
  // What the address asks for.
  async follow() {
    const wanted = location.hash.startsWith("#cell=") ? location.hash.slice(1) : "";
    if (wanted === this.wanted) return;
    this.wanted = wanted;
    if (!wanted) { this.remove(); return; }
    const words = new URLSearchParams(wanted);
    const step = `${location.pathname}/step/${encodeURIComponent(words.get("cell"))}`;
    const resource = encodeURIComponent(words.get("resource"));
    const { ok, html } = await fetchPart(`${step}/change?resource=${resource}`).catch(() => ({ ok: false }));
    if (wanted !== this.wanted) return;
    if (ok) this.show(html);
    else location.href = `${step}?resource=${resource}#did`;
  },
  open(cell) {
    const words = new URLSearchParams(cell.search);
    const place = cell.pathname.split("/").pop();
    const address = `#cell=${place}&resource=${encodeURIComponent(words.get("resource"))}`;
    // One step back closes it, however many cells were looked into.
    if (this.panel) history.replaceState(history.state, "", address);
    else history.pushState({ isPeek: true }, "", address);
    this.follow();
  },
  close() {
    if (!this.panel) return;
    this.wanted = "";
    this.remove();
    if (history.state?.isPeek) history.back();
    else history.replaceState(null, "", location.pathname + location.search);
  },
  show(html) {
    this.panel?.remove();
    this.from?.removeAttribute("aria-current");
    const words = new URLSearchParams(this.wanted);
    const isIt = (cell) => cell.pathname.endsWith(`/step/${words.get("cell")}`) && new URLSearchParams(cell.search).get("resource") === words.get("resource");
    this.from = all(".matrix a.cell").find(isIt) ?? null;
    this.panel = document.createElement("aside");
    this.panel.className = "peek";
    this.panel.setAttribute("aria-label", this.from?.title ?? "What a step did");
    const close = document.createElement("button");
    close.type = "button";
    close.className = "quiet peek-close";
    close.textContent = "Close";
    close.addEventListener("click", () => this.close());
    this.panel.append(close, parse(html));
    document.body.append(this.panel);
    this.from?.setAttribute("aria-current", "true");
    // The page made room for the panel.
    this.from?.scrollIntoView({ block: "nearest", inline: "nearest" });
    ($("h2", this.panel) ?? close).focus({ preventScroll: true });
  },
  remove() {
    this.panel?.remove();
    this.panel = null;
    this.from?.removeAttribute("aria-current");
    this.from?.focus();
    this.from = null;
  },
};

// The matrix narrowed while somebody types: by the server, which has also the rows of other pages.
const narrow = (input) => {
  let asked = 0;
  let timer;
  const refresh = async () => {
    const number = ++asked;
    const address = new URL(input.form.action);
    address.search = new URLSearchParams(new FormData(input.form));
    address.hash = "";
    const { ok, html } = await fetchPart(address).catch(() => ({ ok: false }));
    if (!ok || number !== asked) return;
    const fresh = $("[data-matrix]", new DOMParser().parseFromString(html, "text/html"));
    if (!fresh) return;
    $("[data-matrix]").replaceWith(fresh);
    history.replaceState(history.state, "", address.pathname + address.search + location.hash);
  };
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, 150);
  });
};

// Through the matrix by arrows: the nearest cell that is a link.
const moveInMatrix = (cell, key) => {
  const cellsOf = (row) => [...row.cells];
  const here = cell.closest("td, th");
  const row = here.parentElement;
  const column = here.cellIndex;
  const linkIn = (place) => place && $("a", place);
  const find = (places) => places.map(linkIn).find(Boolean);
  const rows = [...row.parentElement.rows];
  const at = rows.indexOf(row);
  const found = {
    ArrowLeft: () => find(cellsOf(row).slice(0, column).reverse()),
    ArrowRight: () => find(cellsOf(row).slice(column + 1)),
    ArrowUp: () => find(rows.slice(0, at).reverse().map((other) => other.cells[column])),
    ArrowDown: () => find(rows.slice(at + 1).map((other) => other.cells[column])),
  }[key]();
  found?.focus();
  return Boolean(found);
};

// Next and previous row of a list, a waterfall, a history.
const moveInRows = (step) => {
  const links = all("main .list tbody th a, main .history .entry-head > a");
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? 0 : Math.min(Math.max(at + step, 0), links.length - 1);
  links[next].focus();
  links[next].scrollIntoView({ block: "nearest" });
};

// Search in a payload: folds open where the word stands, and the word is marked.
const search = (input) => {
  const tree = $(".yaml", input.closest("section, main"));
  if (!tree || !("highlights" in CSS)) return;
  const highlight = (ranges, here) => {
    CSS.highlights.set("found", new Highlight(...ranges));
    CSS.highlights.set("here", new Highlight(...(here ? [here] : [])));
  };
  let ranges = [];
  let at = -1;
  const show = (index) => {
    at = (index + ranges.length) % ranges.length;
    const element = ranges[at].startContainer.parentElement;
    for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    element.scrollIntoView({ block: "center" });
    highlight(ranges, ranges[at]);
  };
  input.addEventListener("input", () => {
    const word = input.value.trim().toLowerCase();
    ranges = [];
    at = -1;
    const texts = document.createTreeWalker(tree, NodeFilter.SHOW_TEXT);
    while (word && ranges.length < 1000 && texts.nextNode()) {
      const text = texts.currentNode.data.toLowerCase();
      for (let from = text.indexOf(word); from >= 0; from = text.indexOf(word, from + word.length)) {
        const range = document.createRange();
        range.setStart(texts.currentNode, from);
        range.setEnd(texts.currentNode, from + word.length);
        ranges.push(range);
      }
    }
    highlight(ranges);
  });
  // Enter goes to the next one here; without any, the whole payload is searched.
  input.form.addEventListener("submit", (event) => {
    if (!ranges.length) return;
    event.preventDefault();
    show(at + 1);
  });
};

const addCopy = (source) => {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet copy";
  button.textContent = "Copy";
  const text = source.textContent;
  button.setAttribute("aria-label", `Copy ${source.tagName === "PRE" ? "the commands" : text}`);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  if (source.tagName === "PRE") source.append(button);
  else source.after(button);
};

const addExpand = (button) => {
  button.hidden = false;
  button.addEventListener("click", () => {
    const tree = $(".yaml", button.closest("section, main"));
    const opens = button.textContent === "Open all";
    all("details", tree).forEach((fold) => { fold.open = opens; });
    button.textContent = opens ? "Close all" : "Open all";
  });
};

const help = $(".help");

document.addEventListener("click", (event) => {
  const cell = event.target.closest(".matrix a.cell");
  const isPlain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
  if (!cell || !isPlain) return;
  event.preventDefault();
  peek.open(cell);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { peek.close(); return; }
  if (isTyping(event.target) || help.open) return;
  const inMatrix = event.target.closest(".matrix tbody a");
  if (inMatrix && event.key.startsWith("Arrow")) {
    if (moveInMatrix(inMatrix, event.key)) event.preventDefault();
    return;
  }
  const keys = {
    j: () => moveInRows(1),
    k: () => moveInRows(-1),
    "/": () => $("main input[type=search], main .filters input")?.focus(),
    "?": () => help.showModal(),
  };
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

const helpButton = $("[data-help]");
helpButton.hidden = false;
helpButton.addEventListener("click", () => help.showModal());
all("[data-live]").forEach(follow);
all("[data-copy]").forEach(addCopy);
all("[data-expand]").forEach(addExpand);
all("[data-search]").forEach(search);
all("[data-narrow]").forEach(narrow);
addEventListener("popstate", () => peek.follow());
peek.follow();

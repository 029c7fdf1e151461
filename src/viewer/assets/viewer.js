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

// A look into a cell, beside the matrix.
const peek = {
  panel: null,
  from: null,
  async open(link) {
    const address = new URL(link.href);
    address.pathname += "/change";
    address.hash = "";
    const { html } = await fetchPart(address);
    this.close();
    this.panel = document.createElement("aside");
    this.panel.className = "peek";
    this.panel.setAttribute("aria-label", link.title);
    const close = document.createElement("button");
    close.type = "button";
    close.className = "quiet peek-close";
    close.textContent = "Close";
    close.addEventListener("click", () => this.close(true));
    this.panel.append(close, parse(html));
    document.body.append(this.panel);
    this.from = link;
    link.setAttribute("aria-current", "true");
    ($("h2", this.panel) ?? close).focus();
  },
  close(returns = false) {
    if (!this.panel) return;
    this.panel.remove();
    this.panel = null;
    this.from.removeAttribute("aria-current");
    if (returns) this.from.focus();
  },
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
  peek.open(cell).catch(() => { location.href = cell.href; });
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { peek.close(true); return; }
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

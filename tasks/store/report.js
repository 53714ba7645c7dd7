"use strict";
const { sounds, sheets } = JSON.parse(document.getElementById("data").textContent);
const CARDS = 8, PAGE = 25; // at once
const count = (value) => value.toLocaleString("en");
const bytesOf = (base64) => Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));

let playing = null; // one at a time; of two that start together, their events tell which came last

document.addEventListener("play", ({ target }) => {
  if (target.paused) return; // its turn was over before it was told
  if (playing !== target) playing?.pause();
  playing = target;
}, true);
document.addEventListener("pause", ({ target }) => { if (playing === target && target.paused) playing = null; }, true);
for (const player of document.querySelectorAll("audio")) player.src = "data:audio/mpeg;base64," + sounds[player.dataset.sound];

// What turns pages of a list: it shows `size` from `first` on.
function turner(pages, size, show) {
  const [back, onward] = pages.querySelectorAll("button"), span = pages.querySelector("span");
  return (first, total) => {
    span.textContent = total ? `rows ${count(first + 1)} to ${count(Math.min(first + size, total))}` : "no row matches";
    back.disabled = first === 0;
    onward.disabled = first + size >= total;
    back.onclick = () => show(first - size);
    onward.onclick = () => show(first + size);
  };
}

for (const form of document.querySelectorAll("form[data-browser]")) {
  const rows = [...form.parentElement.querySelectorAll(".rows > li")].map((item) => [item, JSON.parse(item.dataset.tags)]);
  const selects = [...form.querySelectorAll("select")];
  const told = form.querySelector("output b"), pages = form.parentElement.querySelector(".pages");
  const turn = turner(pages, CARDS, (first) => { show(first); form.scrollIntoView(); });
  function show(first) {
    const meant = rows.filter(([, tags]) => selects.every((one) => !one.value || tags[one.dataset.filter] === one.value));
    const shown = new Set(meant.slice(first, first + CARDS).map(([item]) => item));
    for (const [item] of rows) {
      item.hidden = !shown.has(item);
      if (item.hidden) for (const player of item.querySelectorAll("audio")) player.pause();
    }
    told.textContent = meant.length;
    turn(first, meant.length);
    pages.hidden = meant.length <= CARDS;
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => show(0));
  form.reset(); // browsers keep a select's choice over a reload, but not which rows it hid
  show(0);
}

// A table: rows to search, order and turn over, opened when they come near; texts only ever become text.
const AT_FIRST = 10;
const WIDE = matchMedia("(min-width: 64rem)");
let current = null; // the served table that keys step through

function made(name, text, attributes = {}) {
  const element = Object.assign(document.createElement(name), attributes);
  if (text !== null) element.textContent = text;
  return element;
}

// Rows that the page holds.
async function held(packed, total) {
  const stream = new Blob([bytesOf(packed)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { columns, values, links } = await new Response(stream).json();
  const size = values[0].length;
  const words = Array.from({ length: size }, (_, row) => values.map((column) => column[row] ?? "").join("\n").toLowerCase());
  const useful = columns.map((_, at) => at).filter((at) => values[at].some((value) => value !== null));
  const { compare } = new Intl.Collator("en", { numeric: true });
  function ask({ search, order, rising, first }) {
    const rows = words.flatMap((text, row) => (search.every((word) => text.includes(word)) ? [row] : []));
    if (order !== null) {
      const column = values[order], sign = rising ? 1 : -1;
      const numeric = column.every((value) => value === null || typeof value === "number");
      rows.sort((a, b) => {
        const x = column[a], y = column[b];
        if (x === null || y === null) return (x === null) - (y === null) || a - b; // empty cells come last either way
        return sign * (numeric ? x - y : compare(x, y)) || a - b;
      });
    }
    return { rows: rows.slice(first, first + PAGE).map((row) => values.map((column) => column[row])), total: rows.length };
  }
  return { columns, links, shown: useful.slice(0, AT_FIRST), size, rest: `; the page holds ${count(size)} of ${total} rows`, ask };
}

// Rows at the server of `earmark view`.
function served({ relation, columns, shown, operations, total }) {
  async function get(path, { search, filters, order, rising, first }) {
    const query = new URLSearchParams({ relation, first, ...(order === null ? {} : { order: columns[order], rising }) });
    for (const filter of [...search.map((word) => ["any column", "contains", word]), ...filters])
      ["column", "operation", "value"].forEach((name, at) => query.append(name, filter[at]));
    const response = await fetch(`${path}?${query}`).catch(() => { throw new Error("earmark view does not answer"); });
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  }
  const ask = async (wanted) => {
    const { rows, total } = await get("rows", wanted);
    return { rows: rows.map((row) => columns.map((name) => row[name])), total };
  };
  const first = columns.slice(0, shown).map((_, at) => at);
  return { columns, links: {}, shown: first, size: total, rest: "", ask, operations, detail: (wanted) => get("row", wanted) };
}

async function openSheet(box) {
  const sheet = sheets[box.dataset.sheet];
  const source = typeof sheet === "string" ? await held(sheet, box.dataset.total) : served(sheet);
  const { columns, links } = source;
  const form = box.querySelector("form"), search = form.querySelector("input"), told = form.querySelector("output");
  const shown = new Set(source.shown);
  const wanted = { search: [], filters: [], order: null, rising: true, first: 0 };
  const turn = turner(box.querySelector(".pages"), PAGE, (at) => load({ first: at }));
  let rows = [], total = 0, asked = 0;

  // Show rows that are wanted in another way; what the server refuses is told, and nothing changes.
  async function load(change) {
    const number = ++asked, next = { ...wanted, first: 0, ...change };
    try {
      const found = source.operations ? await source.ask(next) : source.ask(next);
      if (number !== asked) return false;
      ({ rows, total } = found);
    } catch (fault) {
      if (number === asked) told.textContent = fault.message;
      return false;
    }
    Object.assign(wanted, next);
    told.textContent = `${count(total)} of ${count(source.size)} match${source.rest}`;
    show();
    choose?.(0, false);
    return true;
  }

  function show() {
    const picked = columns.map((_, at) => at).filter((at) => shown.has(at));
    const decimals = (value) => (String(value).split(".")[1] ?? "").length;
    const numeric = columns.map((_, at) => rows.every((row) => row[at] === null || typeof row[at] === "number"));
    const most = columns.map((_, at) => (numeric[at] ? rows.reduce((a, row) => Math.max(a, decimals(row[at])), 0) : 0));
    function cell(at, value) {
      const text = value === null ? "–" : String(value);
      // figure spaces in place of digits that are not there: decimal points stand below each other
      const short = numeric[at] && value !== null && !text.includes("e") ? most[at] - decimals(value) : 0;
      const pad = (short && !decimals(value) ? "\u2008" : "") + "\u2007".repeat(short);
      const item = made("td", text + pad, numeric[at] ? { className: "n" } : {});
      const aim = Object.hasOwn(links, columns[at]) && Object.hasOwn(links[columns[at]], text) && links[columns[at]][text];
      if (aim) item.replaceChildren(made("a", text, { href: `#${aim}` }));
      return item;
    }
    box.querySelector("thead tr").replaceChildren(...picked.map((at) => {
      const { order, rising } = wanted;
      const head = made("th", null, { scope: "col", className: numeric[at] ? "n" : "" });
      head.ariaSort = order === at ? (rising ? "ascending" : "descending") : "none";
      head.append(made("button", columns[at], { type: "button", onclick: async () => {
        if (await load({ order: at, rising: order === at ? !rising : true }))
          box.querySelectorAll("thead button")[picked.indexOf(at)].focus();
      } }));
      return head;
    }));
    box.querySelector("tbody").replaceChildren(...rows.map((row, place) => {
      const line = made("tr", null, choose ? { onclick: () => { current = keys; choose(place, true); } } : {});
      line.append(...picked.map((at) => cell(at, row[at])));
      return line;
    }));
    box.querySelector("summary").textContent = `columns (${shown.size} of ${columns.length})`;
    turn(wanted.first, total);
  }

  box.querySelector("details div").replaceChildren(...columns.map((name, at) => {
    const label = made("label", null), tick = made("input", null, { type: "checkbox", checked: shown.has(at) });
    tick.onchange = () => { if (tick.checked) shown.add(at); else shown.delete(at); show(); choose?.(chosen, detail.isConnected); };
    label.append(tick, ` ${name}`);
    return label;
  }));
  form.onsubmit = (event) => event.preventDefault();
  let waiting = null;
  search.oninput = () => {
    const find = () => load({ search: search.value.toLowerCase().split(/\s+/).filter(Boolean) });
    clearTimeout(waiting);
    if (source.operations) waiting = setTimeout(find, 250); else find();
  };

  // All of a row, with its clips: beside the table, or on a narrow window below the row that was tapped.
  const ariaLabel = `${box.querySelector("[role=region]").ariaLabel}, chosen row`;
  const detail = made("div", null, { className: "detail", tabIndex: 0, role: "region", ariaLabel });
  let chosen = 0;
  async function chooseServed(place, open) {
    const lines = [...box.querySelectorAll("tbody tr:not(.below)")], line = lines[place];
    const again = open && !WIDE.matches && detail.parentElement?.parentElement?.previousElementSibling === line;
    box.querySelector("tr.below")?.remove();
    for (const one of lines) one.classList.toggle("chosen", one === line);
    chosen = place;
    if (!line || again || !(open || WIDE.matches)) return detail.remove();
    detail.ariaBusy = "true"; // it still shows another row
    const number = asked, found = await source.detail({ ...wanted, first: wanted.first + place }).catch((fault) => {
      told.textContent = fault.message;
    });
    if (!found || number !== asked || chosen !== place || !line.isConnected) return;
    fill(detail, found);
    detail.ariaBusy = "false";
    if (WIDE.matches) return box.append(detail);
    const below = made("tr", null, { className: "below" }), cell = made("td", null, { colSpan: shown.size });
    cell.append(detail);
    below.append(cell);
    box.querySelector("tr.below")?.remove();
    line.after(below);
    line.scrollIntoView({ block: "nearest", behavior: "instant" }); // details that closed above moved it
  }
  const choose = source.operations ? chooseServed : null;
  const keys = { box, detail, async step(by) {
    const at = chosen + by, open = detail.isConnected;
    if (at >= 0 && at < rows.length) choose(at, open && at !== chosen);
    else if (wanted.first + at >= 0 && wanted.first + at < total && (await load({ first: wanted.first + (by > 0 ? PAGE : -PAGE) })))
      choose(by > 0 ? 0 : rows.length - 1, open);
    box.querySelector("tr.chosen")?.scrollIntoView({ block: "nearest", behavior: "instant" });
  } };
  if (choose) {
    current ??= keys;
    box.classList.add("served");
    const select = (label, values) => {
      const one = made("select", null, { ariaLabel: label });
      one.append(...values.map((value) => made("option", value)));
      return one;
    };
    const column = select("column", columns), operation = select("condition", source.operations);
    const value = made("input", null, { ariaLabel: "value" }), chips = made("span", null, { className: "chips" });
    const list = () => chips.replaceChildren(...wanted.filters.map((filter) => made("button", `${filter.join(" ")} ×`, {
      type: "button", title: "drop this filter", onclick: () => set(wanted.filters.filter((one) => one !== filter)),
    })));
    const set = async (filters) => { if (await load({ filters })) list(); };
    form.onsubmit = (event) => {
      event.preventDefault();
      if (document.activeElement !== search) set([...wanted.filters, [column.value, operation.value, value.value]]);
    };
    told.before(column, operation, value, made("button", "Add filter"), chips);
    WIDE.addEventListener("change", () => choose(chosen, detail.isConnected));
  }
  await load({});
  box.dataset.open = "yes";
}

function fill(detail, { clips, facts }) {
  const parts = clips.map(([label, sha256], place) => {
    if (label.includes("image")) return made("img", null, { src: `clips/${sha256}`, alt: label });
    const part = made("div", `${place + 1}: ${label}`), src = `clips/${sha256}`;
    const canvas = made("canvas", null, { width: 320, height: 108, ariaLabel: `Spectrogram and waveform: ${label}` });
    part.append(canvas, made("audio", null, { controls: true, preload: "metadata", src, ariaLabel: `clip ${place + 1}` }));
    fetch(src).then((response) => (response.ok ? response.arrayBuffer() : Promise.reject(new Error("not at hand"))))
      .then(drawBytes.bind(null, canvas)).catch((fault) => canvas.replaceWith(made("p", `No picture: ${fault.message}`)));
    return part;
  });
  const list = made("dl", null);
  for (const [name, says, values] of facts) {
    const fact = made("div", null);
    fact.append(made("dt", name, { title: says }), ...values.map(([label, text]) => {
      const value = made("dd", text);
      if (label) value.prepend(made("small", label));
      return value;
    }));
    list.append(fact);
  }
  detail.replaceChildren(...parts, list);
}

document.addEventListener("keydown", (event) => {
  if (!current || event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const place = current.box.getBoundingClientRect(), by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by && place.bottom > 0 && place.top < innerHeight) {
    event.preventDefault();
    current.step(by);
  }
  if (current.detail.ariaBusy === "true") return; // its clips are another row's
  const player = current.detail.querySelectorAll("audio")[Number(event.key) - 1];
  if (!player?.paused) return player?.pause();
  playing?.pause();
  player.play().catch((fault) => { if (fault.name !== "AbortError") throw fault; });
});

// A clip: its spectrogram (512-point Hann windows, 0 to 12 kHz, 70 dB from dark to bright) above its waveform, in which
// a column of pixels goes from the lowest sample to the highest, full scale from edge to edge.
const SIZE = 512, WAVE = 36;
const HANN = Float32Array.from({ length: SIZE }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / SIZE));

function fft(re, im) {
  for (let i = 1, j = 0; i < SIZE; i++) {
    let bit = SIZE >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) [re[i], re[j]] = [re[j], re[i]];
  }
  for (let half = 1; half < SIZE; half *= 2) {
    for (let k = 0; k < half; k++) {
      const c = Math.cos((Math.PI * k) / half), s = -Math.sin((Math.PI * k) / half);
      for (let i = k; i < SIZE; i += 2 * half) {
        const x = re[i + half] * c - im[i + half] * s, y = re[i + half] * s + im[i + half] * c;
        re[i + half] = re[i] - x; im[i + half] = im[i] - y; re[i] += x; im[i] += y;
      }
    }
  }
}

function draw(canvas, samples) {
  const context = canvas.getContext("2d"), { width } = canvas, height = canvas.height - WAVE;
  const image = context.createImageData(width, height);
  const step = Math.max(1, (samples.length - SIZE) / width);
  const re = new Float32Array(SIZE), im = new Float32Array(SIZE);
  for (let x = 0; x < width; x++) {
    const start = Math.floor(x * step);
    for (let i = 0; i < SIZE; i++) { re[i] = (samples[start + i] || 0) * HANN[i]; im[i] = 0; }
    fft(re, im);
    for (let y = 0; y < height; y++) {
      const bin = Math.floor(((height - 1 - y) / height) ** 1.6 * (SIZE / 2)); // low frequencies get more room
      const level = 10 * Math.log10(re[bin] ** 2 + im[bin] ** 2 + 1e-9) - 20;
      const v = Math.min(1, Math.max(0, (level + 50) / 70)), at = 4 * (y * width + x);
      image.data[at] = 16 + 239 * v ** 1.2; image.data[at + 1] = 19 + 210 * v ** 2; image.data[at + 2] = 26 + 150 * Math.sin(Math.PI * v ** 0.8) ;
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  const middle = height + WAVE / 2, each = samples.length / width;
  context.fillStyle = "#8fc1f2";
  for (let x = 0; x < width; x++) {
    const part = samples.subarray(Math.floor(x * each), Math.max(Math.floor((x + 1) * each), Math.floor(x * each) + 1));
    let low = 1, high = -1;
    for (const one of part) { if (one < low) low = one; if (one > high) high = one; }
    const top = middle - Math.min(1, high) * (WAVE / 2 - 1), end = middle - Math.max(-1, low) * (WAVE / 2 - 1);
    context.fillRect(x, top, 1, Math.max(1, end - top));
  }
  canvas.dataset.drawn = "yes";
}

const drawBytes = async (canvas, bytes) =>
  draw(canvas, (await new OfflineAudioContext(1, 1, 24000).decodeAudioData(bytes)).getChannelData(0));

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    seen.unobserve(entry.target);
    if (entry.target.dataset.sheet) openSheet(entry.target);
    else drawBytes(entry.target, bytesOf(sounds[entry.target.dataset.sound]).buffer);
  }
}, { rootMargin: "300px" });
for (const canvas of document.querySelectorAll("canvas, [data-sheet]")) seen.observe(canvas);

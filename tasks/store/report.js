"use strict";
const { sounds, sheets } = JSON.parse(document.getElementById("data").textContent);
const CARDS = 8, PAGE = 25; // at once
const bytesOf = (base64) => Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));

let playing = null; // one at a time; of two that start together, their events tell which came last

for (const player of document.querySelectorAll("audio")) {
  player.src = "data:audio/mpeg;base64," + sounds[player.dataset.sound];
  player.addEventListener("play", () => {
    if (player.paused) return; // its turn was over before it was told
    if (playing !== player) playing?.pause();
    playing = player;
  });
  player.addEventListener("pause", () => { if (playing === player && player.paused) playing = null; });
}

// What turns pages of a list: it shows `size` from `first` on.
function turner(pages, size, show) {
  const [back, onward] = pages.querySelectorAll("button"), span = pages.querySelector("span");
  const count = (value) => value.toLocaleString("en");
  const at = (first, total) => {
    span.textContent = total ? `rows ${count(first + 1)} to ${count(Math.min(first + size, total))}` : "no row matches";
    back.disabled = first === 0;
    onward.disabled = first + size >= total;
    back.onclick = () => show(first - size);
    onward.onclick = () => show(first + size);
  };
  return at;
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

// A table: rows to search, order and turn over. They are unpacked when they come near; texts only ever become text.
const AT_FIRST = 10;

function made(name, text, attributes = {}) {
  const element = Object.assign(document.createElement(name), attributes);
  if (text !== null) element.textContent = text;
  return element;
}

async function openSheet(box) {
  const packed = new Blob([bytesOf(sheets[box.dataset.sheet])]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { columns, values, links } = await new Response(packed).json();
  const form = box.querySelector("form"), search = form.querySelector("input"), told = form.querySelector("output");
  const size = values[0].length, total = told.textContent.split(" of ")[1];
  const words = Array.from({ length: size }, (_, row) => values.map((column) => column[row] ?? "").join("\n").toLowerCase());
  const numeric = values.map((column) => column.every((value) => value === null || typeof value === "number"));
  const useful = columns.map((_, at) => at).filter((at) => values[at].some((value) => value !== null));
  const shown = new Set(useful.slice(0, AT_FIRST));
  const turn = turner(box.querySelector(".pages"), PAGE, (at) => { first = at; show(); });
  const { compare } = new Intl.Collator("en", { numeric: true });
  let order = null, rising = true, first = 0, rows = [];

  function choose() {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = words.flatMap((text, row) => (wanted.every((word) => text.includes(word)) ? [row] : []));
    if (order !== null) {
      const column = values[order], sign = rising ? 1 : -1;
      rows.sort((a, b) => {
        const x = column[a], y = column[b];
        if (x === null || y === null) return (x === null) - (y === null) || a - b; // empty cells come last either way
        return sign * (numeric[order] ? x - y : compare(x, y)) || a - b;
      });
    }
    first = 0;
    show();
  }

  function cell(at, row) {
    const value = values[at][row], text = value === null ? "–" : String(value);
    const item = made("td", text, numeric[at] ? { className: "n" } : {});
    const aim = Object.hasOwn(links, columns[at]) && Object.hasOwn(links[columns[at]], text) && links[columns[at]][text];
    if (aim) item.replaceChildren(made("a", text, { href: `#${aim}` }));
    return item;
  }

  function show() {
    const picked = columns.map((_, at) => at).filter((at) => shown.has(at));
    box.querySelector("thead tr").replaceChildren(...picked.map((at) => {
      const head = made("th", null, { scope: "col", className: numeric[at] ? "n" : "" });
      head.ariaSort = order === at ? (rising ? "ascending" : "descending") : "none";
      head.append(made("button", columns[at], { type: "button", onclick: () => {
        [order, rising] = [at, order === at ? !rising : true];
        choose();
        box.querySelectorAll("thead button")[picked.indexOf(at)].focus();
      } }));
      return head;
    }));
    box.querySelector("tbody").replaceChildren(...rows.slice(first, first + PAGE).map((row) => {
      const line = made("tr", null);
      line.append(...picked.map((at) => cell(at, row)));
      return line;
    }));
    const count = (value) => value.toLocaleString("en");
    told.textContent = `${count(rows.length)} of ${count(size)} match; the page holds ${count(size)} of ${total.split(" ")[0]} rows`;
    box.querySelector("summary").textContent = `columns (${shown.size} of ${columns.length})`;
    turn(first, rows.length);
  }

  box.querySelector("details div").replaceChildren(...columns.map((name, at) => {
    const label = made("label", null), tick = made("input", null, { type: "checkbox", checked: shown.has(at) });
    tick.onchange = () => { if (tick.checked) shown.add(at); else shown.delete(at); show(); };
    label.append(tick, ` ${name}`);
    return label;
  }));
  form.onsubmit = (event) => event.preventDefault();
  search.oninput = choose;
  choose();
  box.dataset.open = "yes";
}

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

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    seen.unobserve(entry.target);
    if (entry.target.dataset.sheet) openSheet(entry.target);
    else new OfflineAudioContext(1, 1, 24000).decodeAudioData(bytesOf(sounds[entry.target.dataset.sound]).buffer)
      .then((sound) => draw(entry.target, sound.getChannelData(0)));
  }
}, { rootMargin: "300px" });
for (const canvas of document.querySelectorAll("canvas, [data-sheet]")) seen.observe(canvas);

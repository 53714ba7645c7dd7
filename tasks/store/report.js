"use strict";
const sounds = JSON.parse(document.getElementById("sounds").textContent);
const bytesOf = (sha256) => Uint8Array.from(atob(sounds[sha256]), (sign) => sign.charCodeAt(0));

for (const player of document.querySelectorAll("audio")) {
  player.src = "data:audio/mpeg;base64," + sounds[player.dataset.sound];
  player.addEventListener("play", () => {
    for (const other of document.querySelectorAll("audio")) if (other !== player) other.pause();
  });
}

for (const form of document.querySelectorAll("form.filters")) {
  const rows = [...form.parentElement.querySelectorAll(".rows > li")].map((item) => [item, JSON.parse(item.dataset.tags)]);
  const selects = [...form.querySelectorAll("select")];
  const told = form.querySelector("output b");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => {
    let shown = 0;
    for (const [item, tags] of rows) {
      item.hidden = selects.some((select) => select.value && tags[select.dataset.filter] !== select.value);
      if (item.hidden) for (const player of item.querySelectorAll("audio")) player.pause();
      else shown += 1;
    }
    told.textContent = shown;
  });
  form.reset(); // browsers keep a select's choice over a reload, but not which rows it hid
}

// A spectrogram: 512-point Hann windows, 0 to 12 kHz, 70 dB from dark to bright.
const SIZE = 512;
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
  const context = canvas.getContext("2d"), { width, height } = canvas;
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
  canvas.dataset.drawn = "yes";
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    seen.unobserve(entry.target);
    new OfflineAudioContext(1, 1, 24000).decodeAudioData(bytesOf(entry.target.dataset.sound).buffer)
      .then((sound) => draw(entry.target, sound.getChannelData(0)));
  }
}, { rootMargin: "300px" });
for (const canvas of document.querySelectorAll("canvas")) seen.observe(canvas);

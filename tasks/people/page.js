"use strict";
// What jsPsych lacks: clips that must be heard, answers that survive a reload, and the file that is handed back.
const study = JSON.parse(document.getElementById("study").textContent);
const place = `earmark-study/${study.study}/${study.key}`;
const served = location.protocol.startsWith("http");
const addresses = {};
const state = kept() ?? { agreed: false, answers: {} };
const PATIENCE_MS = 20000; // without a sound, after which a clip counts as one that does not play
const AGAIN_MS = 5000; // between attempts to send the last answers
let keeps = true; // whether this browser keeps answers between visits

const warnings = {}; // by what they are about: one that is over leaves the others
function warn(about, text) {
  warnings[about] = text;
  const box = document.getElementById("warning");
  box.textContent = Object.values(warnings).filter(Boolean).join(" ");
  box.hidden = !box.textContent;
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(place));
  } catch {
    return null;
  }
}

function keep(sent) {
  try {
    Object.assign(state.answers, kept()?.answers, sent); // of another tab or device: what was answered first stays
    localStorage.setItem(place, JSON.stringify(state));
  } catch {
    keeps = false;
    const copy = served ? "" : ", or save a copy below first";
    warn("kept", `This browser keeps nothing between visits: do not close or reload this page before the end${copy}.`);
  }
}

function crc32(text) {
  let crc = -1;
  for (const byte of new TextEncoder().encode(text)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ((crc ^ -1) >>> 0).toString(16).padStart(8, "0");
}

function answerFile() {
  const body = JSON.stringify(state.answers);
  const { format, study: name, page, key } = study;
  return JSON.stringify({ format, study: name, page, key, body, crc32: crc32(body) });
}

async function send(again) {
  if (!served) return true;
  try {
    const answer = await fetch("answers", { method: "POST", headers: { "Content-Type": "application/json" }, body: answerFile() });
    if (answer.status === 409 && !again) { // another device answered first
      await bring();
      return send(true);
    }
    warn("sent", answer.ok ? "" : `The server did not take the answers: ${await answer.text()}`);
    return answer.ok;
  } catch {
    warn("sent", "The server cannot be reached. Your answers are kept in this browser; go on, or come back later.");
    return false;
  }
}

// What the server has of this page, from another browser or visit, holds: the page goes on from there.
async function bring() {
  if (!served) return;
  try {
    const answer = await fetch("answers");
    if (answer.status === 200) keep(JSON.parse((await answer.json()).body));
  } catch {
    warn("sent", "The server cannot be reached. Your answers are kept in this browser; go on, or come back later.");
  }
}

function address(clip) {
  const written = study.clips[clip];
  if (!written.startsWith("data:")) return written;
  if (!addresses[clip]) {
    const [head, text] = written.split(",");
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    addresses[clip] = URL.createObjectURL(new Blob([bytes], { type: head.slice(5).split(";")[0] }));
  }
  return addresses[clip];
}

function seconds(audio) {
  let sum = 0;
  for (let i = 0; i < audio.played.length; i++) sum += audio.played.end(i) - audio.played.start(i);
  return sum;
}

// Called when a screen is shown: gives players their sound and holds the button back until every clip was heard. A
// clip that does not play must not end the page: the listener may then go on, without an answer to this screen.
function listen() {
  warn("sound", "");
  const stage = document.getElementById("stage");
  const button = stage.querySelector("input[type=submit]");
  const players = [...stage.querySelectorAll("audio[data-letter]")];
  const over = new Set(); // what was heard once stays heard
  const wait = Object.assign(document.createElement("span"), { id: "wait" });
  wait.setAttribute("aria-live", "polite");
  const cannot = Object.assign(document.createElement("button"), { id: "cannot", type: "button", className: "plain" });
  button.after(wait, cannot);
  const moved = new Map(players.map((one) => [one, performance.now()]));
  const awaited = (one) => one.readyState === 0 && one.networkState === one.NETWORK_LOADING; // phones load what is played
  const silent = (one) =>
    one.error || (performance.now() - moved.get(one) > PATIENCE_MS && (!one.paused || awaited(one)));
  const check = () => {
    if (!button.isConnected) return clearInterval(timer);
    for (const one of players) {
      const length = Number.isFinite(one.duration) ? one.duration : one.ended ? one.currentTime : NaN;
      if (length > 0 && seconds(one) >= study.must_hear * length - 0.05) over.add(one);
    }
    const open = players.filter((one) => !over.has(one));
    for (const one of players) {
      const share = one.duration > 0 ? Math.min(1, seconds(one) / one.duration) : 0;
      stage.querySelector(`[data-heard=${one.dataset.letter}]`).textContent = `heard ${Math.round(100 * share)} %`;
    }
    button.disabled = open.length > 0;
    wait.textContent = open.length ? `Play ${open.map((one) => one.getAttribute("aria-label")).join(" and ")} first.` : "";
    const stuck = open.filter(silent), names = stuck.map((one) => one.getAttribute("aria-label")).join(" and ");
    cannot.hidden = stuck.length === 0;
    cannot.textContent = `${names} cannot be played: go on without an answer`;
    cannot.value = stuck.map((one) => one.dataset.letter).join("");
  };
  const timer = setInterval(check, 1000);
  cannot.onclick = () => {
    const unplayable = Object.assign(document.createElement("input"), { type: "hidden", name: "unplayable", value: cannot.value });
    for (const one of stage.querySelectorAll("fieldset")) one.remove(); // also what was chosen already
    button.before(unplayable);
    button.disabled = false;
    button.click();
  };
  for (const one of stage.querySelectorAll("audio")) {
    one.addEventListener("play", () => one.paused || alone(one)); // its turn may be over before it is told
    one.addEventListener("error", () => warn("sound", "A clip does not play. Reload this page; if that does not help, go on, and tell whoever sent you the page."));
    for (const event of ["timeupdate", "play", "loadedmetadata"]) one.addEventListener(event, () => moved.set(one, performance.now()));
    for (const event of ["timeupdate", "ended", "pause", "loadedmetadata", "error"]) one.addEventListener(event, check);
    one.src = address(one.dataset.clip);
  }
  check();
  document.getElementById("stage").focus();
  scrollTo(0, 0);
}

function alone(player) {
  for (const other of document.querySelectorAll("#stage audio")) if (other !== player) other.pause();
}

function heard() {
  const players = document.querySelectorAll("#stage audio[data-letter]");
  return Object.fromEntries([...players].map((one) => [one.dataset.letter, Math.round(100 * seconds(one)) / 100]));
}

// A and B play and pause the clips wherever the focus is, except in text.
document.addEventListener("keydown", (event) => {
  if (event.target.matches("textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const player = document.querySelector(`#stage audio[data-letter="${CSS.escape(event.key.toLowerCase())}"]`);
  if (!player?.paused) return player?.pause();
  alone(player);
  player.play().catch((fault) => fault.name === "AbortError" || warn("sound", fault.message)); // pressed twice
});

function showProgress() {
  const done = study.trials.filter((trial) => trial.id in state.answers).length;
  const bar = document.getElementById("progress");
  [bar.max, bar.value] = [study.trials.length, done];
  document.getElementById("count").textContent = `${done} of ${study.trials.length}`;
  const footer = document.getElementById("kept");
  footer.textContent = served
    ? "Your answers are sent after every screen: you may close this page and open its link again later. "
    : "Your answers are kept in this browser after every screen: you may close this page and open it here again later, except in a private window. ";
  if (!keeps) footer.textContent = "";
  const copy = Object.assign(document.createElement("button"), { type: "button", className: "plain", textContent: "Save a copy of the answers so far" });
  copy.onclick = () => answerLink().click();
  if (done && !served) footer.append(copy);
}

function answerLink() {
  const link = Object.assign(document.createElement("a"), { className: "button", textContent: "Save the answers" });
  link.href = URL.createObjectURL(new Blob([answerFile()], { type: "application/json" }));
  link.download = `${study.study}-${study.page}.json`;
  return link;
}

async function finish() {
  const stage = document.getElementById("stage");
  stage.innerHTML = "<h1>Thank you</h1><p id='end'></p>";
  document.getElementById("kept").hidden = true;
  const end = document.getElementById("end"), arrived = "Your answers have arrived. You can close this page.";
  const file = "save the file and send it back to whoever gave you this page.";
  if (served && (await send())) return (end.textContent = arrived);
  const link = answerLink();
  end.textContent = served ? `Your answers have not arrived yet. Leave this page open, it tries again; or ${file}` : `S${file.slice(1)}`;
  stage.append(link);
  while (served) {
    await new Promise((done) => setTimeout(done, AGAIN_MS));
    if (!(await send())) continue;
    link.remove();
    return (end.textContent = arrived);
  }
}

const form = { type: jsPsychSurveyHtmlForm, button_label: "Continue", on_load: listen };
let shown = 0;
// The form is gone when jsPsych says that a trial is over: what was heard is read as it is sent.
let lastHeard = {};
document.addEventListener("submit", () => { lastHeard = heard(); }, true);

function timeline() {
  const intro = study.intro.map((html) => ({ ...form, html, data: { intro: true } }));
  if (intro.length) intro.at(-1).on_finish = () => { state.agreed = true; keep(); };
  const trials = study.trials
    .filter((trial) => !(trial.id in state.answers))
    .map((trial) => ({
      ...form,
      html: trial.html,
      on_load: () => { shown = performance.now(); listen(); },
      data: { id: trial.id },
    }));
  return trials.length ? [...(state.agreed ? [] : intro), ...trials] : [];
}

const psych = initJsPsych({
  display_element: "stage",
  on_trial_finish: (data) => {
    if (!data.id) return;
    const spent = Math.round((performance.now() - shown) / 10) / 100;
    const whole = (text) => new TextDecoder().decode(new TextEncoder().encode(text)); // half a letter would spoil the file
    const response = Object.fromEntries(Object.entries(data.response).map(([name, text]) => [name, whole(text)]));
    state.answers[data.id] = { response, heard_s: lastHeard, seconds: spent, at: new Date().toISOString() };
    keep();
    send();
    showProgress();
  },
  on_finish: finish,
});
bring().then(() => {
  keep();
  showProgress();
  const screens = timeline();
  screens.length ? psych.run(screens) : finish();
});

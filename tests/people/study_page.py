"""A study's page as its listener uses it, in Chromium."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from earmark.flows.command.cli import app
from earmark.schemas.study import AnnotatorPage, StudyPlan, Trial
from tests.browser import PATIENCE_S, Tab

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "data/demo/study.toml"
RANKS = json.loads((ROOT / "data/demo/music/known_order.json").read_text())["ranks"]
HEAR = """(async () => {
  for (const one of document.querySelectorAll('#stage audio[data-letter]')) {
    one.playbackRate = 8; one.muted = true;
    const over = new Promise((done) => one.addEventListener('ended', done, { once: true }));
    await one.play(); await over;
  }
})()"""
CONTINUE = "document.querySelector('#stage input[type=submit]')"


def better(plan: StudyPlan, trial: Trial, question: str) -> str:
    """The answer of someone who hears as the demo was made; the first clip where it made no difference."""
    ranks = {letter: RANKS[question][plan.generations[clip].model] for letter, clip in trial.clips.items()}
    return min(sorted(ranks), key=lambda letter: ranks[letter])


def worse(plan: StudyPlan, trial: Trial, question: str) -> str:
    return {"a": "b", "b": "a"}[better(plan, trial, question)]


def pass_intro(tab: Tab) -> None:
    """Go on to the first trial; the demo has one example, whose clips must be heard."""
    tab.until(f"{CONTINUE} !== null")
    tab.ask(HEAR)
    tab.until(f"!{CONTINUE}.disabled")
    tab.ask(f"{CONTINUE}.click()")
    tab.until("document.querySelector('#stage fieldset') !== null")


def answer(tab: Tab, plan: StudyPlan, trial: Trial, judge: Callable[[StudyPlan, Trial, str], str]) -> None:
    """Hear both clips, answer both questions and go on."""
    text = json.dumps(plan.prompts[trial.prompt_id].text)
    tab.until(f"document.querySelector('#stage blockquote')?.textContent === {text}")
    assert tab.ask(f"{CONTINUE}.disabled"), "answered before anything was heard"
    tab.ask(HEAR)
    tab.until(f"!{CONTINUE}.disabled")
    for question in plan.questions:
        value = judge(plan, trial, question)
        tab.ask(f"document.querySelector('input[name={question}][value=\"{value}\"]').click()")
    for question, sure in (("musicality", 4), ("alignment", 3)):
        tab.ask(f"document.querySelector('input[name=confidence_{question}][value=\"{sure}\"]')?.click()")
    # the next screen may look the same: this one's form must be gone
    tab.ask(f"document.querySelector('#stage form').dataset.before = ''; {CONTINUE}.click()")
    tab.until("document.querySelector('[data-before]') === null")


def label(
    tab: Tab, plan: StudyPlan, page: AnnotatorPage, judge: Callable[[StudyPlan, Trial, str], str], trials: slice
) -> None:
    for trial in page.trials[trials]:
        answer(tab, plan, trial, judge)


def saved(tab: Tab, folder: Path, name: str) -> Path:
    """The file that the last screen offers, downloaded as a person would."""
    tab("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    tab.until("document.querySelector('a[download]') !== null")
    tab.ask("document.querySelector('a[download]').click()")
    until = time.monotonic() + PATIENCE_S
    while not (folder / name).exists():
        assert time.monotonic() < until, f"never downloaded: {name}"
        time.sleep(0.05)
    return folder / name


def start_study(folder: Path, config: Path = CONFIG) -> Path:
    """Start a study, the demo's unless another is named, by the documented command."""
    words = ["people", "study", "start", "--config", str(config), "--out", str(folder)]
    started = CliRunner().invoke(app, words)
    assert started.exit_code == 0, started.output
    return folder


def ratings_study(folder: Path, annotators: int, more: str) -> Path:
    """A started study of ratings on a question about sound, with the demo's clips of four systems for each prompt."""
    rows = [json.loads(line) for line in (ROOT / "data/demo/music/prompts.jsonl").read_text().splitlines()[:4]]
    table = folder / "prompts.csv"
    table.write_text("prompt_id,text,group\n" + "".join(f'{r["prompt_id"]},"{r["text"]}",id\n' for r in rows))
    config = folder / "study.toml"
    config.write_text(
        f'name = "mos"\nkind = "ratings"\nprompts = "prompts.csv"\nannotators = {annotators}\n'
        f'generations = "{ROOT}/data/demo/music/generations.jsonl"\n{more}\n'
        '[[questions]]\nname = "quality"\ntext = "How good is the sound?"\n'
    )
    return start_study(folder / "study", config)

"""Write a study's pages: an HTML file for each annotator, without network, with its state in the browser.

The screens run on jsPsych (MIT) with its form plugin, both in `vendor/`; `page.js` adds clips with compulsory
listening, a state surviving reloads, and the file of answers.
"""

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt

from earmark.schemas.errors import InputError
from earmark.schemas.places import clips_folder
from earmark.schemas.study import FORMAT, PLAN, YEARS, AnnotatorPage, Study, StudyPlan, Trial
from earmark.tasks.store.files import place, sha256_file

PLAYABLE = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".m4a": "audio/mp4",
    ".webm": "audio/webm",
}
_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
MOST_INSIDE = 400 << 20  # bytes of sound and pictures in a page: browsers fail on texts of half a gigabyte
CLIPS = "clips"


def write_pages(study: Study, plan: StudyPlan, folder: Path) -> None:
    """Write the page of each annotator as `<name>.html`, and clips into `clips/` if kept beside."""
    folder.mkdir(parents=True)
    for page in plan.pages:
        screens = _Screens(study, plan, folder)
        trials = [(trial.id, screens.trial(trial)) for trial in page.trials]
        write_page(folder, study.name, page, study.must_hear, screens.intro(), trials, screens.used)


def write_plan(plan: StudyPlan, folder: Path) -> None:
    """Write the plan beside the pages."""
    path = folder / PLAN
    path.touch(mode=0o600)  # it names models or labels, and holds the keys of the pages
    path.write_text(plan.model_dump_json(indent=1), "utf-8")


def write_page(
    folder: Path,
    title: str,
    page: AnnotatorPage,
    must_hear: float,
    intro: list[str],
    trials: list[tuple[str, str]],
    clips: dict[str, str],
) -> None:
    """Write a page, `<name>.html`, without names of models: clips are known by letters, trials by digits.

    Args:
        must_hear: least share of each clip to listen to.
        intro, trials: HTML of the screens before the first trial, and of each trial by its id.
        clips: addresses of sounds by their names in the HTML.

    Raises:
        InputError: its clips are too large for a page.
    """
    if (size := sum(map(len, [*clips.values(), *(html for _, html in trials)]))) > MOST_INSIDE:
        raise InputError(
            f"page {page.name}: its clips and pictures are {size >> 20} MB, most a page holds is {MOST_INSIDE >> 20}; "
            "put clips beside the pages, or fewer trials or pictures on a page"
        )
    content = {
        "format": FORMAT,
        "study": title,
        "page": page.name,
        "key": page.key,
        "must_hear": must_hear,
        "intro": intro,
        "trials": [{"id": trial, "html": html} for trial, html in trials],
        "clips": clips,
    }
    scripts = [_part(f"vendor/{name}") for name in ("jspsych-8.3.0.min.js", "survey-html-form-2.1.0.min.js")]
    scripts.append(_part("page.js"))
    html = render(
        "page",
        title=title,
        style=_part("page.css"),
        scripts=scripts,
        hashes=[base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts],
        content=json.dumps(content, ensure_ascii=False).replace("<", "\\u003c"),
    )
    (folder / f"{page.name}.html").write_text(html, "utf-8")


def sound_address(folder: Path, path: Path, digest: str, *, inside: bool) -> str:
    """Return a page's address of a clip: data inside it, or a path in its folder, with an uninformative name."""
    ending = path.suffix.lower()
    if ending not in PLAYABLE:
        known = ", ".join(PLAYABLE)
        raise InputError(f"clip '{path.name}': browsers play {known}; found '{ending}'; convert it first")
    if inside:
        return f"data:{PLAYABLE[ending]};base64,{base64.b64encode(path.read_bytes()).decode()}"
    target = folder / CLIPS / f"{digest[:16]}{ending}"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        place(path, target)
    return f"{CLIPS}/{target.name}"


def picture_address(content: bytes) -> str:
    """Return a page's address of a picture, inside it."""
    kind = next((name for magic, name in _MAGIC.items() if content.startswith(magic)), "image/png")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


class _Screens:
    """Screens as HTML; text of tables and files is escaped, Markdown takes no HTML."""

    def __init__(self, study: Study, plan: StudyPlan, folder: Path) -> None:
        self._study, self._plan, self._folder = study, plan, folder
        self._criteria = _markdown(study, study.criteria)
        self.used: dict[str, str] = {}

    def intro(self) -> list[str]:
        """Return consent, instructions and examples, if in the config."""
        study = self._study
        parts = [("consent", _markdown(study, study.consent)), ("text", _markdown(study, study.instructions))]
        shown = [render("screens/intro", kind=kind, html=html) for kind, html in parts if html]
        for example in study.examples:
            prompt_id = self._plan.generations[example.a].prompt_id
            clips = {"a": example.a, "b": example.b}
            shown.append(render("screens/example", says=example.says, **self._facts(prompt_id, clips)))
        return shown or [render("screens/intro", kind="text", html=_DEFAULT_INTRO)]

    def trial(self, trial: Trial) -> str:
        """Return a screen with clips and questions, or with those about the annotator."""
        study = self._study
        if trial.kind == "background":
            return render("screens/background", years=YEARS)
        return render(
            "screens/trial",
            kind=study.kind,
            questions=study.questions,
            ties=study.ties,
            scale=range(study.scale[0], study.scale[1] + 1),
            criteria=self._criteria,
            **self._facts(trial.prompt_id, trial.clips),
        )

    def _facts(self, prompt_id: str, clips: dict[str, str]) -> dict[str, Any]:
        prompt = self._plan.prompts[prompt_id]
        heard = {letter: self._plan.generations[clip] for letter, clip in clips.items()}
        named = {letter: self._named(self._study.generations, one.audio, one.sha256) for letter, one in heard.items()}
        given = next(iter(heard.values())).conditioned_on
        parts = ("lyrics", "reference") if given is None else given.split("+")  # the models' inputs
        reference = prompt.reference if "reference" in parts else None
        return {
            "text": prompt.text,
            "lyrics": prompt.lyrics if "lyrics" in parts else None,
            "reference": self._named(self._study.prompts, reference) if reference else None,
            "reference_caption": prompt.reference_caption if "caption" in parts else None,
            "clips": named,
        }

    def _named(self, table: str, audio: str, digest: str | None = None) -> str:
        """Return the name of a clip in the page, and record it as used."""
        path = clip_path(self._study, table, audio)
        try:
            digest = digest or sha256_file(path)
        except OSError as error:
            raise InputError(f"clip '{audio}': {error.strerror}") from None
        if digest[:16] not in self.used:
            inside = self._study.sound == "inside"
            self.used[digest[:16]] = sound_address(self._folder, path, digest, inside=inside)
        return digest[:16]


def clip_path(study: Study, table: str, audio: str) -> Path:
    """Return the path of a clip named by a table or a pattern of files, or of a scored system."""
    if study.scored_in:
        return Path(audio)
    root = clips_folder(study.path(table))
    path = root / audio
    if not path.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{table}: clip '{audio}' lies outside the table's folder")
    return path


_DEFAULT_INTRO = "<h1>Listening test</h1><p>Use headphones, in a quiet place. Play every clip before you answer.</p>"


def _markdown(study: Study, written: str | None) -> str | None:
    if written is None:
        return None
    try:
        text = study.path(written).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{written}: expected a Markdown file in UTF-8, found: {error}") from None
    return str(MarkdownIt("commonmark", {"html": False}).disable("image").render(text))


def render(name: str, **values: Any) -> str:
    """Return the HTML of a template."""
    return _templates().get_template(f"{name}.html.j2").render(**values)


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )

"""Read annotators' answer files, check them against the plan, and turn them into votes or ratings."""

import hashlib
import json
import re
import statistics
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from earmark.schemas.corpus import Corpus
from earmark.schemas.errors import InputError
from earmark.schemas.results import ListeningFacts, Opinion, SystemOpinion
from earmark.schemas.study import (
    ANSWERS,
    FACTS,
    PLAN,
    UNPLAYABLE,
    YEARS,
    AnnotatorPage,
    AnswerFile,
    ScreenAnswer,
    StudyPlan,
    Trial,
)
from earmark.schemas.toml import first_fault
from earmark.tasks.evaluation.leaderboard import OPINIONS
from earmark.tasks.evaluation.submission import prompts_of
from earmark.tasks.store.agreement import alpha
from earmark.tasks.store.folder import records_of, write_record
from earmark.tasks.store.manifest import digest_of
from earmark.tasks.store.versions import Store, Version

MOST_BYTES = 8 << 20
TRIAL_BYTES = 32 << 10  # of a trial's answer: its longest feedback takes 12,000, twice quoted 24,000
MOST_FEEDBACK = 2000  # characters, like the page's limit
FEWEST_ALIKE = 10  # trials with one rating or letter for all questions, from which an annotator does not listen
FORMS = {  # of the fields of screens without clips
    "background": {"years": YEARS, "profession": "yes|no", "appreciation": "[1-5]"},
    "facts": {name: fact.form for name, fact in FACTS.items()},
}
READERS = {"audit": "earmark people audit read", "facts": "earmark people review facts"}
_ANSWERS = TypeAdapter(dict[str, ScreenAnswer])
Row = dict[str, Any]


class Returned(NamedTuple):
    """Answers of a page."""

    page: str  # its name
    file: str  # the file's name
    answers: Mapping[str, ScreenAnswer]  # by trial

    @property
    def judged(self) -> dict[str, ScreenAnswer]:
        """Return the answers without those about clips that did not play."""
        return {trial: one for trial, one in self.answers.items() if UNPLAYABLE not in one.response}


class AnnotatorProgress(NamedTuple):
    """Progress of an annotator."""

    page: str
    done: int  # trials answered
    trials: int  # trials of the page
    known_right: int  # known pairs answered as expected
    known: int  # known pairs answered
    repeats_same: int  # questions of repeats with the first answer again, or a rating at most 1 off
    repeats: int  # questions of repeats answered twice
    median_s: float | None  # seconds spent on a trial
    # whether more known pairs, or more repeated ratings, than allowed are wrong, or all letters or ratings are equal
    fails: bool
    expert: bool | None  # by ATTM's rule; None if the background is not asked or not answered


def read_plan(folder: Path) -> StudyPlan:
    """Return the plan of a study's folder.

    Raises:
        InputError: the plan is missing or was changed.
    """
    try:
        return StudyPlan.model_validate_json((folder / PLAN).read_bytes())
    except OSError:
        raise InputError(
            f"{folder}: expected the folder of a study, an audit or facts, with {PLAN}; see `earmark people --help`"
        ) from None
    except ValidationError as error:
        raise InputError(f"{folder / PLAN}: not a plan of this release: {first_fault(error)[1]}") from None


def parse_answers(plan: StudyPlan, content: bytes, name: str) -> Returned:
    """Check a returned file; messages call it `name`."""
    try:
        file = AnswerFile.model_validate_json(content.decode(json.detect_encoding(content)))  # saved anew by an editor
    except (ValidationError, UnicodeDecodeError):
        raise InputError(f"{name}: expected the JSON file that a study's page saves") from None
    if file.study != plan.study:
        raise InputError(f"{name}: belongs to study '{file.study[:64]}', not '{plan.study}'")
    page = next((page for page in plan.pages if page.name == file.page and page.key == file.key), None)
    if page is None:
        raise InputError(f"{name}: its page is not one of this study: made by an earlier start, or changed")
    if f"{zlib.crc32(file.body.encode()):08x}" != file.crc32:
        raise InputError(f"{name}: the answers do not fit their checksum: the file was changed or damaged")
    try:
        answers = _ANSWERS.validate_json(file.body)
    except ValidationError as error:
        raise InputError(f"{name}: answers in an unknown form: {first_fault(error)[1]}") from None
    trials = {trial.id for trial in page.trials}
    for trial, answer in answers.items():
        if trial not in trials:
            raise InputError(f"{name}: answers a trial that page {page.name} does not have")
        if fault := _fault(plan, page, trial, answer):
            raise InputError(f"{name}: trial {trial}: {fault}")
    return Returned(page.name, name, answers)


def _fault(plan: StudyPlan, page: AnnotatorPage, name: str, answer: ScreenAnswer) -> str | None:
    trial = next(trial for trial in page.trials if trial.id == name)
    if forms := FORMS.get(trial.kind):
        odd = [field for field, form in forms.items() if not re.fullmatch(form, answer.response.get(field, ""))]
        odd += sorted(answer.response.keys() - forms.keys())
        return f"expected {', '.join(forms)}, found another {odd[0][:40]!r}" if odd else None
    letters = trial.clips.keys() or {"a", "b"}  # an audited row's plan does not name its clips
    if UNPLAYABLE in answer.response:
        unplayable = answer.response[UNPLAYABLE]
        if not unplayable or not letters >= set(unplayable) or answer.response.keys() - {UNPLAYABLE, "feedback"}:
            return f"expected letters of clips that did not play and no answer, found {unplayable[:40]!r}"
    fields = {UNPLAYABLE, "feedback", *plan.questions, *(f"confidence_{question}" for question in plan.questions)}
    if unknown := sorted(answer.response.keys() - fields):
        return f"expected answers to {', '.join(plan.questions)}, found a field {unknown[0][:40]!r}"
    if len(answer.response.get("feedback", "")) > MOST_FEEDBACK:
        return f"expected at most {MOST_FEEDBACK} characters of feedback, found {len(answer.response['feedback'])}"
    if trial.clips and (unknown := sorted(answer.heard_s.keys() - letters)):
        return f"expected seconds of the clips {', '.join(sorted(letters))}, found those of {unknown[0][:40]!r}"
    for question in () if UNPLAYABLE in answer.response else plan.questions:
        if (value := answer.response.get(question)) not in plan.choices:
            return f"expected one of {', '.join(plan.choices)} for {question}, found {str(value)[:40]!r}"
        sure = answer.response.get(f"confidence_{question}")
        if plan.kind == "pairs" and sure not in ("1", "2", "3", "4", "5"):
            return f"expected a confidence from 1 to 5 for {question}, found {str(sure)[:40]!r}"
    return None


def read_answers(plan: StudyPlan, folder: Path, files: Iterable[Path]) -> tuple[list[Returned], list[str]]:
    """Return the answers in a study's folder and further files, by page, and a line for each refused file. Equal files
    count once; if a file continues another of its page, the longer counts; contradicting files are all refused."""
    kept: dict[str, Returned] = {}
    refused, contradicted = [], set()
    for path in [*sorted((folder / ANSWERS).glob("*.json")), *files]:
        try:
            if path.stat().st_size > MOST_BYTES:
                raise InputError(f"{path.name}: larger than {MOST_BYTES >> 20} MB")
            one = parse_answers(plan, path.read_bytes(), path.name)
        except (OSError, InputError) as error:
            refused.append(f"{path.name}: {error.strerror}" if isinstance(error, OSError) else str(error))
            continue
        before = kept.get(one.page)
        if before is None or _goes_on(one, before):
            kept[one.page] = one
        elif not _goes_on(before, one):
            contradicted.add(one.page)
            both = f"{one.file} and {before.file}"
            refused.append(f"{both}: different answers of page {one.page}; neither is used; take one away")
    return [one for name, one in sorted(kept.items()) if name not in contradicted], refused


def _goes_on(longer: Returned, shorter: Returned) -> bool:
    return all(longer.answers.get(trial) == answer for trial, answer in shorter.answers.items())


def progress_of(plan: StudyPlan, returned: Iterable[Returned]) -> list[AnnotatorProgress]:
    """Return each page's progress, and its annotator's results in the checks."""
    by_page = {one.page: one.judged for one in returned}
    return [_progress(plan, page, by_page.get(page.name, {})) for page in plan.pages]


def _progress(plan: StudyPlan, page: AnnotatorPage, answers: Mapping[str, ScreenAnswer]) -> AnnotatorProgress:
    firsts = {frozenset(trial.clips.values()): trial for trial in page.trials if trial.kind in ("pair", "rating")}
    known = right = twice = same = 0
    for trial in page.items:
        if trial.id not in answers:
            continue
        given = answers[trial.id].response
        for question, expected in trial.expected.items() if trial.kind == "known" else ():
            known += 1
            right += given[question] == expected
        first = firsts.get(frozenset(trial.clips.values())) if trial.kind == "repeat" else None
        if first is not None and first.id in answers:
            before = answers[first.id].response
            twice += len(plan.questions)
            same += sum(_same(plan, trial, given[one], first, before[one]) for one in plan.questions)
    done = [answers[trial.id] for trial in page.items if trial.id in answers]
    if plan.kind == "ratings":
        fails = twice > 0 and (twice - same) / twice > plan.most_failed
    else:
        fails = known > 0 and (known - right) / known > plan.most_failed
    if plan.kind in ("pairs", "ratings"):
        said = {one.response[question] for one in done for question in plan.questions}
        fails |= len(done) >= FEWEST_ALIKE and len(said) == 1 and said != {"tie"}
    return AnnotatorProgress(
        page=page.name,
        done=len(done),
        trials=len(page.items),
        known_right=right,
        known=known,
        repeats_same=same,
        repeats=twice,
        median_s=statistics.median(one.seconds for one in done) if done else None,
        fails=fails,
        expert=_expert(page, answers),
    )


def _same(plan: StudyPlan, trial: Trial, value: str, first: Trial, before: str) -> bool:
    """Return whether a repeated trial has the first answer; a rating may be a step off."""
    if plan.kind == "ratings":
        return abs(int(value) - int(before)) <= 1
    return _clip(trial, value) == _clip(first, before)


def _expert(page: AnnotatorPage, answers: Mapping[str, ScreenAnswer]) -> bool | None:
    """Return whether any of ATTM's signs holds: more than three years, a profession in music, appreciation above 3."""
    trial = next((trial for trial in page.trials if trial.kind == "background"), None)
    if trial is None or trial.id not in answers:
        return None
    said = answers[trial.id].response
    return float(said["years"]) > 3 or said["profession"] == "yes" or int(said["appreciation"]) > 3


def _clip(trial: Trial, value: str) -> str:
    """Return the preferred generation's id, or the answer itself if it names none."""
    return trial.clips.get(value, value)


def unplayed(plan: StudyPlan, returned: Iterable[Returned]) -> list[str]:
    """Return a line for each page with clips that did not play, and with the names of these or of their rows."""
    trials = {(page.name, trial.id): trial for page in plan.pages for trial in page.trials}
    lines = []
    for one in returned:
        screens = [(trials[one.page, i], one.answers[i].response[UNPLAYABLE]) for i in one.answers.keys() - one.judged]
        clips = {trial.clips.get(letter, f"{trial.prompt_id} {letter}") for trial, which in screens for letter in which}
        if screens:
            lines.append(
                f"{one.page}: {len(screens)} without an answer, as clips did not play: {', '.join(sorted(clips))}"
            )
    return lines


def usable(plan: StudyPlan, returned: Iterable[Returned]) -> list[Returned]:
    """Return the answers of annotators who pass their checks."""
    kept = list(returned)
    failed = {one.page for one in progress_of(plan, kept) if one.fails}
    return [one for one in kept if one.page not in failed]


def votes_of(plan: StudyPlan, returned: Sequence[Returned]) -> list[Row]:
    """Return answers as rows: for `pairs` in the layout `votes` of `human-preferences`, for `ratings` a row for each
    clip.

    Repeats and known pairs are checks, not votes.

    Raises:
        InputError: the plan is of an audit, or of facts.
    """
    if reader := READERS.get(plan.kind):
        raise InputError(f"{plan.study} is no study; read it with `{reader}`")
    rows = []
    experts = {one.page: one.expert for one in progress_of(plan, returned)}
    for one in returned:
        page = next(page for page in plan.pages if page.name == one.page)
        answers = one.judged
        for trial in page.trials:
            if trial.id in answers and trial.kind in ("pair", "rating"):
                rows.append(_row(plan, page, trial, answers[trial.id], experts[page.name]))
    return rows


def _row(plan: StudyPlan, page: AnnotatorPage, trial: Trial, answer: ScreenAnswer, expert: bool | None) -> Row:
    prompt = plan.prompts[trial.prompt_id]
    common = {
        "vote_id": hashlib.sha256(f"{page.key}/{trial.id}".encode()).hexdigest()[:16],
        "annotator": f"{plan.study}-{page.name}-{page.key[:8]}",  # a restarted study has other annotators
        "prompt_id": trial.prompt_id,
        "text": prompt.text,
        "lyrics": prompt.lyrics,
        "date": answer.at,
        "feedback": answer.response.get("feedback") or None,
    }
    if plan.kind == "ratings":
        made = plan.generations[trial.clips["a"]]
        scores = {question: int(answer.response[question]) for question in plan.questions}
        known = {} if expert is None else {"expert": expert}
        return {**common, **known, "system": made.model, "audio": made.audio, **scores}
    row: Row = {**common, "reference": prompt.reference and _below(plan.prompts_in, prompt.reference)}
    for letter in ("a", "b"):
        made = plan.generations[trial.clips[letter]]
        row |= {f"audio_{letter}": _below(plan.generations_in, made.audio), f"model_{letter}": made.model}
        row[f"listened_{letter}_s"] = answer.heard_s.get(letter)
    for question in plan.questions:
        row[question] = answer.response[question]
        row[f"confidence_{question}"] = int(answer.response[f"confidence_{question}"])
    return row


def _below(folder: str, path: str) -> str:
    return f"{folder}/{path}" if folder else path


def agreement_of(plan: StudyPlan, returned: Iterable[Returned]) -> dict[str, float | None]:
    """Return Krippendorff's nominal alpha of each question over pairs with at least two votes; None if undefined."""
    counts: dict[str, dict[frozenset[str], Counter[str]]] = {one: defaultdict(Counter) for one in plan.questions}
    trials = {trial.id: trial for page in plan.pages for trial in page.trials if trial.kind == "pair"}
    for one in returned:
        for trial_id, answer in one.judged.items():
            if trial := trials.get(trial_id):
                for question, by_pair in counts.items():
                    by_pair[frozenset(trial.clips.values())][_clip(trial, answer.response[question])] += 1
    return {question: alpha(_table(by_pair)) for question, by_pair in counts.items()}


def _table(by_pair: Mapping[frozenset[str], Counter[str]]) -> list[list[int]]:
    """Return votes by pair and choice: first clip, second clip, neither.

    A hash decides the order of the clips: in the order of ids, all votes would fall on one choice if the better models'
    ids come first, and alpha would be undefined.
    """
    rows = []
    for pair, votes in by_pair.items():
        one, other = sorted(pair, key=lambda clip: hashlib.sha256(clip.encode()).digest())
        rows.append([votes[one], votes[other], votes.total() - votes[one] - votes[other]])
    return rows or [[0, 0, 0]]


def lines_of(rows: Iterable[Row]) -> str:
    """Return rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def mean_opinions(plan: StudyPlan, returned: Sequence[Returned]) -> list[SystemOpinion]:
    """Return ratings by question and system, best first: of all annotators, and under `experts` of experts alone."""
    rows: list[SystemOpinion] = []
    ratings = votes_of(plan, returned)
    for question in plan.questions:
        by_system: dict[str, list[Row]] = defaultdict(list)
        for row in ratings:
            by_system[row["system"]].append(row)
        for system, given in by_system.items():
            experts = [row for row in given if row.get("expert")]
            rows.append(
                {
                    "system": system,
                    "question": question,
                    **_opinion(given, question),
                    "experts": _opinion(experts, question) if experts else None,
                }
            )
    return sorted(rows, key=lambda row: (plan.questions.index(row["question"]), -row["mos"], row["system"]))


def _opinion(rows: Iterable[Row], question: str) -> Opinion:
    """Return the mean of the ratings, their standard deviation, and the mean's 95 % interval (Student's t).

    Ratings of one annotator depend on each other: the interval is that of a ratio of sums over annotators. With as many
    ratings from each, it is that of the annotators' means.
    """
    from scipy.stats import t  # imported here: loading takes longer than most commands

    by_annotator: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        by_annotator[row["annotator"]].append(row[question])
    scores = [value for values in by_annotator.values() for value in values]
    mos, people, half = statistics.fmean(scores), len(by_annotator), None
    if people > 1:
        apart = [sum(value - mos for value in values) / len(scores) for values in by_annotator.values()]
        error = (sum(one * one for one in apart) * people / (people - 1)) ** 0.5
        half = float(t.ppf(0.975, people - 1)) * error
    return {
        "mos": mos,
        "sd": statistics.stdev(scores) if len(scores) > 1 else None,
        "half_width": half,
        "ratings": len(scores),
        "annotators": people,
    }


def record_opinions(
    store: Store, version: Version, corpus: Corpus, plan: StudyPlan, returned: Sequence[Returned]
) -> Path:
    """Write mean opinion scores of a study of ratings, for `earmark eval rank`; return the folder.

    The version's prompts are the study's, by their ids. An earlier record of the same study is replaced.

    Raises:
        InputError: the study compares clips, nobody answered, the version lacks a prompt of it, or the record is of
            another study of this name.
    """
    spec = f"{corpus.name}@{version.name}"
    if plan.kind != "ratings" or corpus.generation is None:
        raise InputError(f"--record {spec}: expected a study of ratings, of systems that were given prompts")
    known = {row[corpus.generation.key] for row in prompts_of(version, corpus.generation)}
    if strange := sorted(plan.prompts.keys() - known):
        raise InputError(f"--record {spec}: the study's prompt '{strange[0]}' is none of that version")
    kept = usable(plan, returned)
    rows = mean_opinions(plan, kept)
    if not rows:
        raise InputError(f"--record {spec}: no answer counts yet")
    rated = {trial.clips["a"] for page in plan.pages for trial in page.items if trial.kind == "rating"}
    clips: dict[str, list[str]] = defaultdict(list)
    for made in sorted((plan.generations[clip] for clip in rated), key=lambda made: made.sha256):
        clips[made.model].append(made.sha256)
    facts: ListeningFacts = {
        "study": plan.study,
        "manifest_sha256": version.manifest.digest(),
        "mos": rows,
        "left_out": sorted({one.page for one in returned} - {one.page for one in kept}),
        "plan": digest_of([page.key for page in plan.pages]),
        "clips": clips,
    }
    folder = records_of(store, version) / f"study-{plan.study}"
    _check_same_study(folder, facts)
    return write_record(folder, OPINIONS, facts)


def _check_same_study(folder: Path, facts: ListeningFacts) -> None:
    """Check that a record is of this study if there is one; of 1.0.0, that it has no system that this study lacks."""
    if not (folder / OPINIONS).is_file():
        return
    before: ListeningFacts = json.loads((folder / OPINIONS).read_bytes())
    strange = {row["system"] for row in before["mos"]} - facts["clips"].keys()
    if strange or before.get("plan", facts["plan"]) != facts["plan"]:
        raise InputError(
            f"{folder}: another study of the name '{facts['study']}' is recorded; name yours in --config when you "
            "start it, or move that folder elsewhere"
        )

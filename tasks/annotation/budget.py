"""Fit requests to the limits of a model and to a budget, shared by all processes with the same ledger."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from earmark.schemas.annotation import AnnotatorConfig, Prices
from earmark.schemas.questions import Audio, Image, Part, Text
from earmark.tasks.annotation.answers import UNCOUNTED, Reply
from earmark.tasks.annotation.errors import BudgetExhausted, OverLimit
from earmark.tasks.annotation.ledger import Ledger
from earmark.tasks.annotation.ledger_rows import Driver
from earmark.tasks.annotation.request import Request


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits and measures of a model; None is no known limit."""

    clip_s: float | None = None  # longest audible clip, in seconds
    audio_s: float | None = None  # most audio in a request, in seconds
    clips: int | None = None  # most clips in a request; 0 without audio input
    images: int | None = None  # most images in a request; 0 without image input
    context_tokens: int | None = None  # most tokens, in and out together
    audio_tokens_per_s: float = 32.0  # tokens per second of audio
    image_tokens: int = 1_500  # approximate tokens per image

    @property
    def boundless(self) -> bool:
        """Return whether the model has no known limit."""
        return self.clip_s is self.audio_s is self.clips is self.images is self.context_tokens is None


KNOWN: tuple[tuple[str, ModelLimits], ...] = (
    # The first entry with a name inside the model's name, in lower case, applies.
    ("qwen2-audio", ModelLimits(clip_s=30, images=0, context_tokens=8_192, audio_tokens_per_s=25)),
    # The processor pads to 300 s and drops the rest; Qwen3-Omni's does not.
    ("qwen2.5-omni", ModelLimits(clip_s=300, context_tokens=32_768, audio_tokens_per_s=25)),
    ("qwen3-omni", ModelLimits(context_tokens=65_536, audio_tokens_per_s=12.5)),
    # 20 and 40 windows of 30 s, after which the processors drop the rest; 25 tokens/s after pooling.
    ("audio-flamingo-3", ModelLimits(clip_s=600, images=0, context_tokens=32_768, audio_tokens_per_s=25)),
    ("music-flamingo", ModelLimits(clip_s=1_200, images=0, context_tokens=32_768, audio_tokens_per_s=25)),
    ("kimi-audio", ModelLimits(images=0, context_tokens=8_192, audio_tokens_per_s=12.5)),
    # 100 mel frames a second, subsampled by 4 and by 5.
    ("midashenglm", ModelLimits(images=0, context_tokens=32_768, audio_tokens_per_s=5)),
    ("gemini-", ModelLimits(audio_s=34_200, images=3_600, context_tokens=1_048_576, audio_tokens_per_s=32)),
    ("gpt-audio", ModelLimits(images=0, context_tokens=128_000, audio_tokens_per_s=10)),
    ("gpt-4o-audio", ModelLimits(images=0, context_tokens=128_000, audio_tokens_per_s=10)),
    ("gpt-4o-mini-audio", ModelLimits(images=0, context_tokens=128_000, audio_tokens_per_s=10)),
    ("gpt-4o", ModelLimits(clips=0, context_tokens=128_000)),
    ("gpt-4.1", ModelLimits(clips=0, context_tokens=1_047_576)),
)


def limits_of(config: AnnotatorConfig) -> ModelLimits:
    """Return the limits of the configured model: the table's values, overridden by the config."""
    name = config.annotator.partition(":")[2].lower()
    known = next((limits for part, limits in KNOWN if part in name), ModelLimits())
    return replace(known, **config.limits.model_dump(exclude_none=True))


def within(request: Request, limits: ModelLimits, *, cut: bool) -> tuple[Request, tuple[str, ...]]:
    """Return the request within the model's limits, with a note on each cut.

    A cut changes the audio form, so a cut request has another key than the whole.

    A model with too long a clip gives no warning: Qwen2-Audio drops all after 30 s, in vLLM and transformers alike, so
    the judgment of a song would be of its intro. The table's values are from model cards; a config's `limits` override
    them, and an unlisted model has only the config's limits.

    Raises:
        OverLimit: the request exceeds a limit, and cutting is not allowed or cannot help.
    """
    if limits.boundless:
        return request, ()
    audios = [part for part in request.parts() if isinstance(part, Audio)]
    _count("audio clips", len(audios), limits.clips)
    _count("images", sum(isinstance(part, Image) for part in request.parts()), limits.images)
    notes: list[str] = []
    longest = limits.clip_s
    lengths = [audio.length_s or 0.0 for audio in audios]
    total = sum(lengths if longest is None or not cut else [min(length, longest) for length in lengths])
    if limits.audio_s is not None and total > limits.audio_s:
        if not cut:
            raise OverLimit(f"expected at most {limits.audio_s:g} s of audio, found {total:g} s")
        share = limits.audio_s / len(audios)
        longest = share if longest is None else min(longest, share)
    if longest is not None and any(_beyond(audio, longest) for audio in audios):
        request = _cut(request, longest, notes, cut=cut)
    worst = tokens(request, limits)
    if limits.context_tokens is not None and worst + request.sampling.max_tokens > limits.context_tokens:
        raise OverLimit(
            f"expected at most {limits.context_tokens} tokens of context, found about {worst} in and up to "
            f"{request.sampling.max_tokens} out"
        )
    return request, tuple(notes)


def tokens(request: Request, limits: ModelLimits) -> int:
    """Estimate the input tokens: a token for 3 bytes of text (English has about 4), and the media."""
    return text_tokens(request, limits) + audio_tokens(request, limits)


def text_tokens(request: Request, limits: ModelLimits) -> int:
    """Estimate text and image tokens, including each message's frame."""
    count = 8 * len(request.messages)
    for part in request.parts():
        if isinstance(part, Text):
            count += len(part.text.encode("utf-8", "replace")) // 3 + 1
        elif isinstance(part, Image):
            count += limits.image_tokens
    return count


def audio_tokens(request: Request, limits: ModelLimits) -> int:
    """Estimate audio tokens; a clip of unknown length counts as the longest audible clip, or 30 s."""
    unknown = limits.clip_s or 30.0
    lengths = [unknown if a.length_s is None else a.length_s for a in request.parts() if isinstance(a, Audio)]
    return sum(int(length * limits.audio_tokens_per_s) + 2 for length in lengths)


def _count(what: str, found: int, most: int | None) -> None:
    if most is not None and found > most:
        raise OverLimit(f"expected at most {most} {what} in a request, found {found}")


def _beyond(audio: Audio, longest: float) -> bool:
    return audio.length_s is not None and audio.length_s > longest + 1e-6


def _cut(request: Request, longest: float, notes: list[str], *, cut: bool) -> Request:
    def shorter(part: Part) -> Part:
        if not isinstance(part, Audio) or not _beyond(part, longest):
            return part
        said = f"clip {part.sha256[:12]}: the model hears {longest:g} s of {part.length_s:g} s"
        if not cut:
            raise OverLimit(f"{said}; shorten it or set on_limit = 'cut'")
        notes.append(said)
        return replace(part, form=replace(part.form, longest_s=longest))

    messages = tuple(replace(m, parts=tuple(shorter(part) for part in m.parts)) for m in request.messages)
    return replace(request, messages=messages)


BATCH_DISCOUNT = 0.5  # share taken off in the batch APIs of OpenAI and Google
NOTHING_USD = 1e-12  # smaller differences between sums of costs are rounding
SAFETY = 1.5  # factor on the estimated input tokens, for scripts with more tokens per byte than English


class Bill(NamedTuple):
    """Cost of a response: tokens in and out, US dollars; `odd` gives the reason for an estimate, if any."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    odd: str | None = None


class Budget:
    """Spending of one annotator, over all its calls."""

    def __init__(self, config: AnnotatorConfig, limits: ModelLimits) -> None:
        self.cap_usd = config.budget_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0
        self.doubtful_usd = 0.0  # worst cases of requests without a complete answer, which may have been charged
        self.odd_answers = 0  # answers with implausible token counts
        self._prices = config.charged
        self._discount = BATCH_DISCOUNT if self._prices and config.batch else 0.0
        self._limits = limits
        self._freed = asyncio.Event()

    def worst_usd(self, request: Request, *, live: bool = False) -> float:
        """Return the highest cost of the request, in US dollars: a generous estimate in, `max_tokens` out.

        Live requests have no discount, also in a run that asks in batches.
        """
        heard = SAFETY * audio_tokens(request, self._limits)
        read = SAFETY * text_tokens(request, self._limits)
        return self._price(read, heard, request.sampling.max_tokens, live)

    def bill(self, request: Request, reply: Reply, *, live: bool = False) -> Bill:
        """Return a response's cost by its token counts, or its highest cost if they are implausible.

        A clip has audio tokens: where a server counts none apart, the estimate of them is charged as audio. Without
        charges, as for builtin functions and many private servers, no counts are needed.
        """
        if reply.odd_usage in UNCOUNTED and self._prices is None:
            return Bill()
        if reply.odd_usage is not None:
            most = request.sampling.max_tokens
            return Bill(tokens(request, self._limits), most, self.worst_usd(request, live=live), reply.odd_usage)
        heard = reply.audio_tokens or min(audio_tokens(request, self._limits), reply.input_tokens)
        cost = self._price(reply.input_tokens - heard, heard, reply.output_tokens, live)
        return Bill(reply.input_tokens, reply.output_tokens, cost)

    async def reserve(self, worst_usd: float) -> None:
        """Reserve the worst case; wait while requests in flight may still turn out cheaper."""
        if self.cap_usd is not None:
            while self.spent_usd + self.doubtful_usd + self.reserved_usd + worst_usd > self.cap_usd:
                if self.reserved_usd <= NOTHING_USD:
                    raise self.exhausted(self.spent_usd, self.doubtful_usd, worst_usd)
                self._freed.clear()
                await self._freed.wait()
        self.reserved_usd += worst_usd

    def settle(self, worst_usd: float, cost_usd: float) -> None:
        """Replace a reservation by the actual cost."""
        self.reserved_usd = max(0.0, self.reserved_usd - worst_usd)
        self.spent_usd += cost_usd
        self._freed.set()

    def doubt(self, request: Request, *, live: bool = False) -> None:
        """Count the worst case of a request with a lost answer: its cost is unknown."""
        self.doubtful_usd += self.worst_usd(request, live=live)

    def exhausted(self, spent_usd: float, doubtful_usd: float, worst_usd: float) -> BudgetExhausted:
        """Return the error of an exhausted budget."""
        return BudgetExhausted(
            f"budget_usd = {self.cap_usd:g}: spent {spent_usd:.4f}, up to {doubtful_usd:.4f} for "
            f"answers that were lost on the way, and the next request may cost {worst_usd:.4f}; "
            "what is answered is in the ledger: raise budget_usd and run again"
        )

    def _price(self, read: float, heard: float, said: float, live: bool) -> float:
        prices = self._prices
        if prices is None:
            return 0.0
        return _usd(prices, read, heard, said) * (1.0 if live else 1.0 - self._discount)


def _usd(prices: Prices, read: float, heard: float, said: float) -> float:
    audio = prices.audio_input_per_million
    if audio is None:
        audio = prices.input_per_million
    return (read * prices.input_per_million + heard * audio + said * prices.output_per_million) / 1e6


LOOK_AGAIN_S = 1.0
ALL = ""  # owner of the row changed first by everyone, so that rows are locked in one order

KNOW = """
INSERT INTO budgets (name, owner, spent_usd, doubtful_usd, reserved_usd, used_at) VALUES (?, ?, 0, 0, 0, ?)
ON CONFLICT (name, owner) DO UPDATE SET used_at = excluded.used_at
"""
LOOK = "SELECT sum(spent_usd), sum(doubtful_usd), sum(reserved_usd), max(closed) FROM budgets WHERE name = ?"
ADD = """
UPDATE budgets SET spent_usd = spent_usd + ?, doubtful_usd = doubtful_usd + ?, reserved_usd = reserved_usd + ?
WHERE name = ? AND owner = ?
"""


class BudgetSums(NamedTuple):
    """Sums of all processes: spent, of unknown cost, and reserved."""

    spent_usd: float
    doubtful_usd: float
    reserved_usd: float
    granted: bool  # whether a reservation was granted
    closed: bool  # whether the budget's session has ended


def reserve(driver: Driver, name: str, owner: str, worst_usd: float, cap_usd: float) -> BudgetSums:
    """Reserve the worst case of a request if the cap allows; a change of the ledger."""
    driver.run(KNOW, (name, ALL, driver.now()))
    [(spent, doubtful, reserved, closed)] = driver.rows(LOOK, (name,))
    granted = not closed and spent + doubtful + reserved + worst_usd <= cap_usd
    if granted:
        driver.run(KNOW, (name, owner, driver.now()))
        driver.run(ADD, (0.0, 0.0, worst_usd, name, owner))
    return BudgetSums(spent, doubtful, reserved, granted, bool(closed))


def add(driver: Driver, name: str, owner: str, spent_usd: float, doubtful_usd: float, reserved_usd: float) -> None:
    """Add to the amounts of an owner; a change of the ledger."""
    driver.run(KNOW, (name, owner, driver.now()))
    driver.run(ADD, (spent_usd, doubtful_usd, reserved_usd, name, owner))


def close(driver: Driver, name: str) -> None:
    """Grant nothing more of a budget, as its session has ended; a change of the ledger."""
    driver.run(KNOW, (name, ALL, driver.now()))
    driver.run("UPDATE budgets SET closed = 1 WHERE name = ? AND owner = ?", (name, ALL))


class SharedBudget(Budget):
    """Part of one process in a budget.

    A killed process leaves its reservation. Its cost is unknown, so it counts as spent for good. The budget of an ended
    session stays for a while, closed: other processes may still be at work, and get no more of it.

    Args:
        config: has cap and prices.
        limits: of the model.
        ledger: an open ledger, shared by all processes.
        name: of the budget.
    """

    def __init__(self, config: AnnotatorConfig, limits: ModelLimits, ledger: Ledger, name: str) -> None:
        super().__init__(config, limits)
        self._ledger = ledger
        self._name = name

    async def reserve(self, worst_usd: float) -> None:
        """Reserve as `Budget.reserve`, for all processes together."""
        if self.cap_usd is not None:
            cap_usd = self.cap_usd

            def change(driver: Driver) -> BudgetSums:
                return reserve(driver, self._name, self._ledger.owner, worst_usd, cap_usd)

            while not (standing := await self._ledger.change(change)).granted:
                if standing.closed:
                    raise BudgetExhausted(f"budget_usd = {self.cap_usd:g}: the build that it was given to has ended")
                if max(standing.reserved_usd, self.reserved_usd) <= NOTHING_USD:
                    raise self.exhausted(standing.spent_usd, standing.doubtful_usd, worst_usd)
                self._freed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_S):
                        await self._freed.wait()
                await self._ledger.free_the_dead()
        self.reserved_usd += worst_usd

    def settle(self, worst_usd: float, cost_usd: float) -> None:
        """Settle as `Budget.settle`."""
        self._add(cost_usd, 0.0, -min(worst_usd, self.reserved_usd))
        super().settle(worst_usd, cost_usd)

    def doubt(self, request: Request, *, live: bool = False) -> None:
        """Count as `Budget.doubt`."""
        self._add(0.0, self.worst_usd(request, live=live), 0.0)
        super().doubt(request, live=live)

    def _add(self, spent_usd: float, doubtful_usd: float, reserved_usd: float) -> None:
        if self.cap_usd is not None and (spent_usd or doubtful_usd or reserved_usd) and not self._ledger.broken:
            amounts = (spent_usd, doubtful_usd, reserved_usd)
            self._ledger.change_soon(lambda driver: add(driver, self._name, self._ledger.owner, *amounts))
